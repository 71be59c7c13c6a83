"""The interface between the service and a loaded model of either kind."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from protos.v1 import engine_pb2
from svclib.session import Call

GenerateCall: TypeAlias = Call[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]


class Backend(Protocol):
    """A loaded model and the loop that runs it. Raises ``Unsupported`` for calls that its kind of model does not
    support.

    Every method is called on the event loop's thread.
    """

    def start(self) -> None:
        """Start the threads; before the first call."""

    async def drain(self) -> None:
        """Refuse new requests, and return when the running ones have finished."""

    async def stop(self) -> None:
        """End the threads. Those that hang are abandoned."""

    async def generate(self, call: GenerateCall) -> None:
        """Serve one request, from its opening entry to its last event."""

    async def embed(self, message: engine_pb2.EmbedRequest) -> engine_pb2.EmbedResponse:
        """One vector for each text."""

    def model_info(self) -> engine_pb2.ModelInfo:
        """The model, its limits and its tasks."""

    def loads(self) -> engine_pb2.Loads:
        """The current load."""
