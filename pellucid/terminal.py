"""Terminal output of the supervisor: the services' lines, each after the service's name, and a progress line at start.

A separate thread writes, so that a paused or slow terminal does not block the supervisor and, through full pipes, the
services. Lines that do not fit into the queue are dropped and counted.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

_MAX_WAITING: Final = 10_000
_REMIND_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 2.0
_COLOURS: Final = ("cyan", "magenta", "yellow", "green")
_OWN_NAME: Final = "pellucid"


class Progress:
    """The state of each service in one line, which rich redraws several times a second."""

    def __init__(self, names: Sequence[str]) -> None:
        self._began = time.monotonic()
        self._states = dict.fromkeys(names, "starting")
        self._spinner = Spinner("line")

    def set(self, name: str, state: str) -> None:
        self._states[name] = state

    def text(self) -> str:
        states = ", ".join(f"{name} {state}" for name, state in self._states.items())
        return f"{states} ({time.monotonic() - self._began:.0f} s)"

    def __rich__(self) -> Table:
        line = Table.grid(padding=(0, 1))
        line.add_row(self._spinner, Text(self.text(), style="bold"))
        return line


class Terminal:
    """The observer that prints. A context manager: leaving it writes the queued lines."""

    def __init__(self, console: Console, names: Sequence[str], banner: str) -> None:
        self._console = console
        self._banner = banner
        self._width = max(map(len, (*names, _OWN_NAME)))
        self._styles = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
        self._progress: Progress | None = Progress(names)
        self._live = Live(self._progress, console=console, transient=True, refresh_per_second=8)
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(_MAX_WAITING)
        self._dropped = 0
        self._final_lines: tuple[str, Sequence[str]] | None = None
        self._writer = threading.Thread(target=self._write, name="terminal", daemon=True)

    def __enter__(self) -> Self:
        self._writer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end_progress()
        if self._final_lines is not None:
            service, lines = self._final_lines
            self.notice(f"last lines of {service}:", "bold red")
            for text in lines:
                self.line(service, text)
        with suppress(queue.Full):
            self._waiting.put(None, timeout=_CLOSE_SECONDS)
        self._writer.join(_CLOSE_SECONDS)

    def line(self, service: str, text: str) -> None:
        self._print(service, Text.from_ansi(text))

    def notice(self, text: str, style: str = "") -> None:
        """Print a line of the supervisor."""
        self._print(_OWN_NAME, Text(text, style))

    def starting(self, service: str, pid: int) -> None:
        self._set_state(service, "starting")
        self.notice(f"{service} started, pid {pid}", "dim")

    def ready(self, service: str) -> None:
        self._set_state(service, "ready")
        self.notice(f"{service} is ready")

    def all_ready(self) -> None:
        """End the progress line and print the banner, without a name before its lines, so that they can be copied."""
        self._end_progress()
        self._submit(partial(self._console.print, self._banner, markup=False, highlight=False, soft_wrap=True))

    def hangs(self, service: str) -> None:
        self._set_state(service, "hangs")
        self.notice(f"{service} does not respond; stopping it", "bold red")

    def ended(self, service: str, how: str, restart_in: float | None) -> None:
        self._set_state(service, "ended")
        next_step = "" if restart_in is None else f"; restarting in {restart_in:g} s"
        self.notice(f"{service} {how}{next_step}", "bold red")

    def draining(self, services: Sequence[str]) -> None:
        self._end_progress()
        self.notice(f"stopping {', '.join(services)}: running requests may finish; press Ctrl-C again to kill")

    def gave_up(self, service: str, why: str, last_lines: Sequence[str]) -> None:
        self.notice(f"{service} cannot run: {why}", "bold red")
        self._final_lines = (service, last_lines)

    def _set_state(self, service: str, state: str) -> None:
        if self._progress is not None:
            self._progress.set(service, state)

    def _end_progress(self) -> None:
        self._progress = None
        self._submit(self._live.stop)

    def _print(self, name: str, text: Text) -> None:
        line = Text.assemble((f"{name:<{self._width}} | ", self._styles.get(name, "bold")), text)
        self._submit(partial(self._console.print, line, highlight=False, soft_wrap=True))

    def _submit(self, action: Callable[[], None]) -> None:
        try:
            self._waiting.put_nowait(action)
        except queue.Full:
            self._dropped += 1

    def _write(self) -> None:
        if self._console.is_terminal:
            self._live.start()
        remind_at = time.monotonic() + _REMIND_SECONDS
        while True:
            with suppress(queue.Empty):
                action = self._waiting.get(timeout=_REMIND_SECONDS)
                if action is None:
                    return
                self._perform(action)
            if time.monotonic() >= remind_at and (progress := self._progress) and not self._console.is_terminal:
                remind_at = time.monotonic() + _REMIND_SECONDS
                self.notice(progress.text())

    def _perform(self, action: Callable[[], None]) -> None:
        # Rich exits the program when the terminal is gone; the stack keeps serving.
        with suppress(OSError, SystemExit):
            action()
            if dropped := self._dropped:
                self._dropped -= dropped
                self._console.print(f"{_OWN_NAME} | {dropped} lines dropped: the terminal is too slow")
