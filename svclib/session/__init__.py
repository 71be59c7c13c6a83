"""Many requests over one long-lived bidirectional stream.

Each frame is a list of entries: a writer puts everything that is waiting into its next frame, so one engine step is one
message however many sequences it moved. Events of one request that wait for the same frame are merged into one entry
(protobuf ``MergeFrom`` joins lists), so a slow reader costs longer entries, not more of them. A large frame is closed
and another begun, so that no frame exceeds the transport's message limit. What waits is bounded (``limits.py``): a
request whose reader is too slow ends with ``Overloaded``, and the session to a peer that does not read ends.

The life of a request, seen from either end:

    open -> any number of events and inputs -> exactly one of: end | failure | cancel | session lost

Entries that arrive after the terminal one are dropped: both ends may end a request at the same moment. This package
knows nothing of what the requests are about; the frame classes come from engine.proto and detokenizer.proto, which
share their shape.
"""

from svclib.session.call import Call
from svclib.session.client import SessionClient, Stream
from svclib.session.limits import SessionLimits
from svclib.session.opening import Opening
from svclib.session.server import SessionServer

__all__ = ["Call", "Opening", "SessionClient", "SessionLimits", "SessionServer", "Stream"]
