"""Ctrl-C between two steps rather than within one, so that the engine stays consistent."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self


class Interrupts:
    """Context manager that defers SIGINT until ``check``. Does nothing outside the main thread."""

    def __init__(self) -> None:
        self._is_pending = False
        self._handler = signal.getsignal(signal.SIGINT)

    def __enter__(self) -> Self:
        if self._takes_signals():
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._takes_signals():
            signal.signal(signal.SIGINT, self._handler)
            self.check()

    def check(self) -> None:
        """Run the deferred SIGINT handler: by default, raise ``KeyboardInterrupt``."""
        if self._is_pending and callable(self._handler):
            self._is_pending = False
            self._handler(signal.SIGINT, None)

    def _takes_signals(self) -> bool:
        return threading.current_thread() is threading.main_thread() and callable(self._handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._is_pending = True
