"""How an answer is shown while it is being written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self, TextIO

_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[0m"


@dataclass(slots=True)
class Screen:
    """Where answers go. On a terminal thinking is dimmed and control characters are taken out."""

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
        """Only for eyes: a pipe gets the answer alone."""
        if text and self.is_terminal:
            self._dim(True)
            self._write(text)

    def end(self, remark: str = "") -> None:
        """The answer is over; ``remark`` says how, if it is worth a word."""
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
    """Text that cannot move the cursor or set the terminal's title: model output is not to be trusted with that."""
    return "".join(c for c in text if c in "\n\t" or not (ord(c) < 32 or 127 <= ord(c) < 160))
