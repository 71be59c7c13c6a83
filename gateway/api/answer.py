"""What an endpoint brings: how its requests are read, and how the answers to them are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.generation.events import Event
from gateway.generation.record import RequestRecord
from gateway.generation.request import GenerationRequest
from gateway.http.errors import Problem


class AnswerWriter(Protocol):
    """Makes the bytes of one answer. One that is not a stream says everything in ``closing``."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...

    def opening(self) -> bytes:
        """What comes before the first event."""

    def events(self, batch: Sequence[Event]) -> bytes:
        """Everything that happened, in one piece; empty when nothing of it is to be told yet."""

    def closing(self) -> bytes:
        """What follows the last event, when every choice has ended."""

    def error(self, problem: Problem) -> bytes:
        """The last bytes of a stream that failed after its status line."""


class ApiRequest(Protocol):
    """A request as an endpoint has read it."""

    @property
    def generation(self) -> GenerationRequest:
        """What to generate."""

    @property
    def is_stream(self) -> bool:
        """The answer is written as it comes; otherwise in one piece."""

    @property
    def ignored(self) -> Sequence[str]:
        """Unknown fields that were ignored."""

    def writer(self, record: RequestRecord) -> AnswerWriter:
        """Asked for once the engine has begun. The record is filled in further."""


class ReadRequest(Protocol):
    """Reads the document in a body. Raises ``InvalidRequest`` naming the field at fault."""

    def __call__(self, document: Mapping[str, Any], *, reject_unknown: bool) -> ApiRequest: ...
