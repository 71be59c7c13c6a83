"""JSON request bodies: headers, parsing within limits, and errors that name the field at fault.

orjson parses the body. It stops at the first fault and reports only its position, so a rejected body is parsed again by
the more tolerant standard library, to name the field whose text is not Unicode or whose number is not finite.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import orjson
from starlette.datastructures import Headers

from gateway.policy.limits import INLINE_JSON_BYTES, JSON_THREADS, MAX_JSON_DEPTH, MAX_JSON_VALUES
from svclib.errors import InvalidRequest, UnsupportedMediaType

RequestT = TypeVar("RequestT")

_MEDIA_TYPE: Final = "application/json"
_UTF_8: Final = frozenset({"utf-8", "utf8"})
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def check_json_headers(headers: Headers) -> None:
    """Raises ``UnsupportedMediaType`` for anything but plain JSON. A missing content-type means JSON."""
    media_type, _, parameters = headers.get("content-type", _MEDIA_TYPE).lower().partition(";")
    if media_type.strip() != _MEDIA_TYPE:
        raise UnsupportedMediaType(f"content-type must be {_MEDIA_TYPE}, not {media_type.strip() or 'empty'}")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    if parameters.strip().startswith("charset=") and charset not in _UTF_8:
        raise UnsupportedMediaType("the charset of JSON must be utf-8")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("compressed bodies are not supported")


class JsonReader:
    """Parses small bodies on the event loop and large ones in a small thread pool, so that they do not block the loop.

    Admission bounds how many wait for the pool.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(JSON_THREADS, thread_name_prefix="json")

    async def read(self, body: bytes, read: Callable[[Mapping[str, Any]], RequestT]) -> RequestT:
        """The result of ``read`` for the JSON object in a body. Raises ``InvalidRequest`` naming the field at fault."""
        if len(body) <= INLINE_JSON_BYTES:
            return read(parse_object(body))
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: read(parse_object(body)))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


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


def format_path(path: tuple[str | int, ...]) -> str:
    """A path in a document, written as ``messages[0].content``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def check_depth(value: Any, param: str) -> None:
    """Raises ``InvalidRequest`` when lists and objects are nested too deep."""
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
    """Bound the work of the parsers, which hold the GIL while they run.

    Every value but the first follows a comma or an opening bracket. Most bodies have few of these characters. For the
    others, those inside strings are not counted: without escaped quotes, every second piece between quotes.
    """
    if _count_separators(body) <= MAX_JSON_VALUES:
        return
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    num_strings = unescaped.count(b'"') // 2
    if num_strings > MAX_JSON_VALUES or _count_separators(b"".join(unescaped.split(b'"')[::2])) > MAX_JSON_VALUES:
        raise InvalidRequest(f"the body must have at most {MAX_JSON_VALUES} values")


def _count_separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _diagnosis(body: bytes, error: orjson.JSONDecodeError) -> InvalidRequest:
    try:
        value = json.loads(body, parse_int=float)
    except RecursionError:
        return InvalidRequest("the body is nested too deep")
    except ValueError:
        value = None
    for path, fault in _faults(value):
        return InvalidRequest(f"{format_path(path)} {fault}", param=format_path(path))
    return InvalidRequest(f"the body is not valid JSON: {error.msg} at character {error.pos}")


def _faults(document: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Values that Python's parser accepts and JSON forbids, level by level."""
    level: list[tuple[tuple[str | int, ...], Any]] = [((), document)]
    while level:
        for path, value in level:
            if fault := _fault(value):
                yield path, fault
        level = [child for path, value in level for child in _placed_children(path, value)]


def _fault(value: Any) -> str:
    if isinstance(value, str) and _SURROGATE.search(value):
        return "must be valid Unicode: it has a lone surrogate"
    if isinstance(value, dict) and any(_SURROGATE.search(key) for key in value):
        return "must have keys of valid Unicode: one has a lone surrogate"
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    return ""


def _placed_children(path: tuple[str | int, ...], value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return (((*path, key), child) for key, child in children)
