r"""Regular expressions in JSON Schemas: what no dialect can read.

The drafts speak of ECMA 262, which Python's ``re`` does not know (``\p{L}``, ``\/``, ``[^]``, ``(?<name>...)``), and
schemas come from generators for Python, Rust and Java as well. So only what is broken in all of them is a fault:
brackets, a dangling backslash, quantifiers of nothing, ranges the wrong way round. One pass over the text.
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
    """What is wrong with a pattern, to be said after its name; empty: nothing that is wrong everywhere."""
    depth, before = 0, "bar"
    for token in _TOKEN.finditer(pattern):
        kind = _kind(token)
        depth += (kind == "opening") - (kind == "closing")
        if depth < 0:
            return "has a `)` without its `(`"
        if fault := _fault(kind, token, before):
            return fault
        before = kind
    return "has a `(` without its `)`" if depth else ""


def _kind(token: re.Match[str]) -> str:
    return "repeat" if token["repeat"] else str(token.lastgroup)


def _fault(kind: str, token: re.Match[str], before: str) -> str:
    match kind:
        case "dangling":
            return "ends with a backslash"
        case "open":
            return "has a `[` without its `]`"
        case "class" if _is_reversed(token["class"]):
            return "has a range of characters the wrong way round"
        case "repeat" if before in ("bar", "opening"):
            return f"repeats nothing with `{token['repeat']}`"
        case "repeat" if token["most"] and int(token["least"]) > int(token["most"]):
            return f"has more at least than at most in `{token['repeat']}`"
    return ""


def _is_reversed(text: str) -> bool:
    """Whether a class has a range of two plain characters that is empty."""
    return any(
        low and high and low not in "-[" and high not in "-[" and low > high
        for low, high in _RANGE.findall(text[1:-1].removeprefix("^"))
    )
