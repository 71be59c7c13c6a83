"""Refuses regular expressions that mean something else in llguidance's dialect.

llguidance reads Rust's syntax (https://docs.rs/regex/latest/regex/#syntax) and itself refuses what that lacks:
look-around, back references.
"""

from __future__ import annotations

import re
from typing import Final

MAX_PATTERN: Final = 4096

_PIECE: Final = re.compile(r"\\.|\[\^?\]?|\]|&&|--|~~|\(\?[a-zA-Z-]+[:)]|.", re.DOTALL)


def check_pattern(pattern: str) -> None:
    """Raises ``ValueError`` for a pattern that means something else in ECMAScript or Python, or is too long."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a pattern can have {MAX_PATTERN} characters at most, not {len(pattern)}")
    in_class = False
    for piece in _PIECE.findall(pattern):
        if piece.startswith("[") and not in_class:
            in_class = True
        elif in_class and (piece in {"&&", "--", "~~"} or piece.startswith("[")):
            raise ValueError(f"`{piece}` inside a character class must be escaped in the pattern {pattern[:80]!r}")
        elif piece == "]":
            in_class = False
        elif piece.startswith("(?") and not in_class:
            raise ValueError(f"flags, {piece}, are not supported in the pattern {pattern[:80]!r}")
