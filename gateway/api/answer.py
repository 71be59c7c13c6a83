"""The interface of an endpoint: how its requests are read, and how their answers are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.generation.events import Event
from gateway.generation.record import RequestRecord
from gateway.generation.request import GenerationRequest
from gateway.http.errors import Problem


class AnswerWriter(Protocol):
    """Makes the bytes of one answer. An answer that is not streamed is all in ``closing``."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...

    def opening(self) -> bytes:
        """The bytes before the first event."""

    def events(self, batch: Sequence[Event]) -> bytes:
        """The bytes of a batch; empty if nothing of it is sent yet."""

    def closing(self) -> bytes:
        """The bytes after the last event, when every choice has ended."""

    def error(self, problem: Problem) -> bytes:
        """The last bytes of a stream that fails after its status line."""


class ApiRequest(Protocol):
    """A request that an endpoint has read."""

    @property
    def generation(self) -> GenerationRequest:
        """What to generate."""

    @property
    def is_stream(self) -> bool:
        """Whether the answer is streamed."""

    @property
    def ignored(self) -> Sequence[str]:
        """Names of unknown fields that were ignored."""

    def writer(self, record: RequestRecord) -> AnswerWriter:
        """Called once the engine has started. The record goes on changing."""


class ReadRequest(Protocol):
    """Reads the JSON document of a request. Raises ``InvalidRequest`` naming the field at fault."""

    def __call__(self, document: Mapping[str, Any], *, reject_unknown: bool) -> ApiRequest: ...
