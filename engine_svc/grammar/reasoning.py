"""Where the constrained part of an output begins: after reasoning ends, if there is any.

The only place in the engine that decides whether reasoning has ended. It compares token ids, and bytes only to find the
closing tag, which a model may spell with other tokens than a tokenizer would.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Final

from engine_svc.constraint import Thinking

_WHITE_SPACE: Final = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Constrained:
    """The constrained part is ``rest``, the bytes after the closing tag in its last token, then all tokens from
    ``start`` on."""

    start: int
    rest: bytes = b""


@dataclass(frozen=True, slots=True)
class Free:
    """Nothing is constrained yet."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The output is a proper prefix of the opening tag. ``next_token_id`` would continue it; if anything else follows,
    the output is constrained from its first token on."""

    next_token_id: int


Position = Constrained | Free | Undecided


def closing_of(thinking: Thinking, spelled: SequenceOf[bytes]) -> bytes:
    """The closing tag as bytes."""
    return b"".join(spelled[token_id] for token_id in thinking.end_token_ids)


@dataclass(slots=True)
class ThinkingGate:
    """Finds the position in the output of one sequence. ``spelled`` has the bytes of each token; those of the closing
    tag are not empty."""

    thinking: Thinking
    spelled: SequenceOf[bytes]
    _closing: bytes = field(init=False)
    _num_read: int = field(init=False, default=0)
    _tail: bytes = field(init=False, default=b"")
    _found: Constrained | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._closing = closing_of(self.thinking, self.spelled)

    def position(self, output: SequenceOf[int]) -> Position:
        """The position after ``output``, which must begin with the output of the call before."""
        if not self.thinking.is_open:
            opening = self.thinking.start_token_ids
            if (begun := tuple(output[: len(opening)])) != opening[: len(begun)]:
                return Constrained(0)
            if len(begun) < len(opening):
                return Undecided(opening[len(begun)])
        return self._after_closing(output) or Free()

    def _after_closing(self, output: SequenceOf[int]) -> Constrained | None:
        """The first closing tag ends the reasoning; white space in its last token is dropped."""
        while self._found is None and self._num_read < len(output):
            self._tail += self.spelled[output[self._num_read]]
            self._num_read += 1
            at = self._tail.find(self._closing)
            if at >= 0:
                rest = self._tail[at + len(self._closing) :].lstrip(_WHITE_SPACE)
                self._found = Constrained(self._num_read, rest)
            self._tail = self._tail[-len(self._closing) :]
        return self._found
