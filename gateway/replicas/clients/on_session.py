"""What requests on any session share."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from svclib.errors import ServiceError
from svclib.session import Stream

StreamT = TypeVar("StreamT", bound=Stream[Any, Any, Any])


class OnSession(Generic[StreamT]):
    """A request on a session: it runs as long as its context, and leaving the context before the end cancels it."""

    def __init__(self, stream: StreamT) -> None:
        self._stream = stream

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)

    def when_too_slow(self, tell: Callable[[ServiceError], None]) -> None:
        """See ``Stream.when_too_slow``."""
        self._stream.when_too_slow(tell)

    def __aiter__(self) -> Self:
        return self
