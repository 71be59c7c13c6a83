"""A request on a session with any service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from svclib.errors import ServiceError
from svclib.session import Stream

StreamT = TypeVar("StreamT", bound=Stream[Any, Any, Any])


class SessionStream(Generic[StreamT]):
    """A request on a session; see ``Stream`` in ``gateway/generation/services.py``."""

    def __init__(self, stream: StreamT) -> None:
        self._stream = stream

    def start(self) -> None:
        self._stream.start()

    def leave(self) -> None:
        self._stream.leave()

    def watch(self, on_news: Callable[[], None], on_slow: Callable[[ServiceError], None]) -> None:
        self._stream.on_overflow(on_slow)
        self._stream.watch(on_news)

    @property
    def is_over(self) -> bool:
        return self._stream.is_over

    @property
    def has_more(self) -> bool:
        return self._stream.has_more
