"""JSON texts inside requests: tool parameters, call arguments, template variables."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from svclib.errors import InvalidRequest

MAX_DEPTH: Final = 100


def parse_object(text: str, param: str) -> dict[str, Any]:
    """The object of a JSON text. Raises ``InvalidRequest`` naming ``param`` for anything else.

    NaN, infinities, lone surrogates, and more than ``MAX_DEPTH`` levels are invalid.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # Lone surrogates cannot be encoded.
    except (ValueError, RecursionError):
        raise InvalidRequest(f"{param} must be the text of a JSON object", param=param) from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{param} must be the text of a JSON object", param=param)
    if _depth(value) > MAX_DEPTH:
        raise InvalidRequest(f"{param} must not be nested deeper than {MAX_DEPTH} levels", param=param)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _depth(value: Any) -> int:
    """Levels of objects and lists, found without recursion."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, (dict, list))]:
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        depth += 1
    return depth
