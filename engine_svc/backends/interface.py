"""What the service asks of a loaded model, whatever kind it is."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from protos.v1 import engine_pb2
from svclib.session import Call

GenerateCall: TypeAlias = Call[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]


class Backend(Protocol):
    """A loaded model and the loop that runs it. Raises ``Unsupported`` for calls that its kind of model cannot serve.

    Every method belongs to the event loop's thread.
    """

    def start(self) -> None:
        """Start the threads; before the first call."""

    async def drain(self) -> None:
        """Refuse new requests, and return when the running ones have ended."""

    async def stop(self) -> None:
        """End the threads. Those that hang are left behind."""

    async def generate(self, call: GenerateCall) -> None:
        """Serve one request, from its opening to its last event."""

    async def embed(self, message: engine_pb2.EmbedRequest) -> engine_pb2.EmbedResponse:
        """One vector for each text."""

    def model_info(self) -> engine_pb2.ModelInfo:
        """What is served, its limits, and the tasks that it can do."""

    def loads(self) -> engine_pb2.Loads:
        """How busy it is."""
