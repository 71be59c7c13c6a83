r"""Syntax check of regular expressions in JSON Schemas, for all common dialects.

The drafts use ECMA 262, which Python's ``re`` does not support (``\p{L}``, ``\/``, ``[^]``, ``(?<name>...)``), and
schemas come from generators for Python, Rust and Java as well. So only what is invalid in all of them is a fault:
unbalanced brackets, a trailing backslash, a quantifier without an operand, a reversed range. One pass over the text.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<class>    \[ \^? (?: [^\\\]] | \\. )*+ \] )
    |(?P<opening>  \( \?? )
    |(?P<closing>  \) )
    |(?P<repeat>   [*+?] | \{ (?P<least>\d{1,10}) (?: , (?P<most>\d{0,10}) )? \} )
    |(?P<bar>      \| )
    |(?P<dangling> \\\Z )
    |(?P<open>     \[ )
    |(?P<atom>     \\. | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_RANGE: Final = re.compile(r"(?:\\.|([^\\]))-(?:\\|(.))", re.DOTALL)


def regex_fault(pattern: str) -> str:
    """The fault of a pattern, worded to follow its name; empty: valid in some dialect."""
    depth, before = 0, "bar"
    for token in _TOKEN.finditer(pattern):
        kind = _kind(token)
        depth += (kind == "opening") - (kind == "closing")
        if depth < 0:
            return "has an unmatched `)`"
        if fault := _fault(kind, token, before):
            return fault
        before = kind
    return "has an unmatched `(`" if depth else ""


def _kind(token: re.Match[str]) -> str:
    return "repeat" if token["repeat"] else str(token.lastgroup)


def _fault(kind: str, token: re.Match[str], before: str) -> str:
    match kind:
        case "dangling":
            return "ends with a backslash"
        case "open":
            return "has an unmatched `[`"
        case "class" if _is_reversed(token["class"]):
            return "has a reversed character range"
        case "repeat" if before in ("bar", "opening"):
            return f"has the quantifier `{token['repeat']}` without an operand"
        case "repeat" if token["most"] and int(token["least"]) > int(token["most"]):
            return f"has the quantifier `{token['repeat']}`, whose minimum is above its maximum"
    return ""


def _is_reversed(text: str) -> bool:
    """Whether a class has a reversed range of two plain characters."""
    return any(
        low and high and low not in "-[" and high not in "-[" and low > high
        for low, high in _RANGE.findall(text[1:-1].removeprefix("^"))
    )
