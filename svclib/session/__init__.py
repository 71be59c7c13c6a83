"""Many requests over one long-lived bidirectional stream.

Client and server speak in frames, and each frame is a list of entries: a writer puts everything that waits into its
next frame, so one engine step is one message however many sequences it moved. While a frame is being written, further
events of one request are merged into one entry (protobuf ``MergeFrom``: lists are joined), so a slow reader costs
longer entries and not more of them. A frame that has grown large is followed by another, so that none is ever too large
for the transport. What waits is bounded (``limits.py``): a request whose reader is too slow ends with ``Overloaded``,
and a peer that does not read at all is lost.

The life of a request, seen from either end:

    open -> any number of events and inputs -> exactly one of: end | failure | cancel | the session is lost

An entry that arrives after that is dropped: it crossed with the other end's last word. This package knows nothing of
what the requests are about; the frame classes are those of engine.proto and detokenizer.proto, which share their shape.
"""

from svclib.session.client import SessionClient, Stream
from svclib.session.limits import SessionLimits
from svclib.session.opening import Opening
from svclib.session.server import Call, SessionServer

__all__ = ["Call", "Opening", "SessionClient", "SessionLimits", "SessionServer", "Stream"]
