"""Shows an answer as it streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self, TextIO

_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[0m"


@dataclass(slots=True)
class Screen:
    """Output for answers. On a terminal, reasoning is dimmed and control characters are removed."""

    out: TextIO
    is_terminal: bool
    _dimmed: bool = False

    @classmethod
    def of(cls, out: TextIO) -> Self:
        return cls(out, out.isatty())

    def content(self, text: str) -> None:
        if text:
            self._dim(False)
            self._write(text)

    def reasoning(self, text: str) -> None:
        """Shown on a terminal only: a pipe gets the answer alone."""
        if text and self.is_terminal:
            self._dim(True)
            self._write(text)

    def end(self, remark: str = "") -> None:
        """End the answer. ``remark``, such as "stopped", is shown on a terminal."""
        self._dim(False)
        self.out.write("\n")
        if remark and self.is_terminal:
            self.out.write(f"{_DIM}({remark}){_PLAIN}\n")
        self.out.flush()

    def _dim(self, dimmed: bool) -> None:
        if self._dimmed is not dimmed:
            self._dimmed = dimmed
            self.out.write(_DIM if dimmed else f"{_PLAIN}\n")

    def _write(self, text: str) -> None:
        self.out.write(without_controls(text) if self.is_terminal else text)
        self.out.flush()


def without_controls(text: str) -> str:
    """Text without control characters: model output must not move the cursor or set the terminal's title."""
    return "".join(c for c in text if c in "\n\t" or not (ord(c) < 32 or 127 <= ord(c) < 160))
