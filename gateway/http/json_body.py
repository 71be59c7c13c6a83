"""Request bodies: bytes to a JSON object, within limits, with an error that says where the fault is.

orjson reads the good ones. It stops at the first fault and knows only its position, so a refused body is read again by
the tolerant parser of the standard library, to name the field whose text is no Unicode or whose number is not finite.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from gateway.policy.limits import MAX_JSON_DEPTH, MAX_JSON_VALUES
from svclib.errors import InvalidRequest

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body. Raises ``InvalidRequest``."""
    _check_count(body)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _diagnosis(body, error) from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return value


def spell(path: tuple[str | int, ...]) -> str:
    """A place in a document, as ``messages[0].content``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def check_depth(value: Any, param: str) -> None:
    """Raises ``InvalidRequest`` when lists and objects are nested too deeply."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise InvalidRequest(f"{param} is nested more than {MAX_JSON_DEPTH} levels deep", param=param)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _check_count(body: bytes) -> None:
    """Bound the work of the parsers, which hold the interpreter while they run.

    Every value but the first follows a comma or an opening bracket. Most bodies have few of these wherever they stand;
    for the others those inside strings are left out: without escaped quotes, every second piece between quotes.
    """
    if _count_separators(body) <= MAX_JSON_VALUES:
        return
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    num_strings = unescaped.count(b'"') // 2
    if num_strings > MAX_JSON_VALUES or _count_separators(b"".join(unescaped.split(b'"')[::2])) > MAX_JSON_VALUES:
        raise InvalidRequest(f"the body holds more than {MAX_JSON_VALUES} values")


def _count_separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _diagnosis(body: bytes, error: orjson.JSONDecodeError) -> InvalidRequest:
    try:
        value = json.loads(body, parse_int=float)
    except RecursionError:
        return InvalidRequest("the body is not read: it is nested too deeply")
    except ValueError:
        value = None
    for path, fault in _faults(value):
        return InvalidRequest(f"{spell(path)} {fault}", param=spell(path))
    return InvalidRequest(f"the body is not valid JSON: {error.msg} at character {error.pos}")


def _faults(document: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What Python reads and JSON forbids, in the order of the document's levels."""
    level: list[tuple[tuple[str | int, ...], Any]] = [((), document)]
    while level:
        for path, value in level:
            if fault := _fault(value):
                yield path, fault
        level = [child for path, value in level for child in _placed_children(path, value)]


def _fault(value: Any) -> str:
    if isinstance(value, str) and _SURROGATE.search(value):
        return "has half of a surrogate pair, which is no character"
    if isinstance(value, dict) and any(_SURROGATE.search(key) for key in value):
        return "has a key with half of a surrogate pair, which is no character"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    return ""


def _placed_children(path: tuple[str | int, ...], value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return (((*path, key), child) for key, child in children)
