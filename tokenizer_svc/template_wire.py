"""What ``renderer`` and its child processes say to each other.

A request is JSON, a NUL byte (JSON has none), and the source of a template. The JSON is the variables of a rendering,
or ``null`` to ask which variables the template reads. As each request carries the source, any child can answer it.

An answer is one byte for its kind, then UTF-8: a text, or the message of what the template raised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tokenizer_svc.limits import LimitExceeded
from tokenizer_svc.template import TemplateFault, TemplateRefusal

_SEPARATOR: Final = b"\0"
_TEXT: Final = b"T"
_RAISED: Final[Mapping[bytes, type[Exception]]] = {b"R": TemplateRefusal, b"F": TemplateFault, b"L": LimitExceeded}
_MAX_SENTENCE: Final = 4000


def pack_request(source: bytes, variables: Mapping[str, Any] | None) -> bytes:
    """``variables`` are plain JSON values without lone surrogates; None asks for the names that the template reads."""
    return json.dumps(variables, ensure_ascii=False).encode() + _SEPARATOR + source


def unpack_request(message: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """The source and the variables."""
    variables, _, source = message.partition(_SEPARATOR)
    return source, json.loads(variables)


def pack_text(text: str) -> bytes:
    """Raises ``UnicodeEncodeError`` for lone surrogates, which are no text."""
    return _TEXT + text.encode()


def pack_error(error: Exception) -> bytes:
    """``error`` is one of those that a template raises."""
    kind = next(kind for kind, raised in _RAISED.items() if isinstance(error, raised))
    return kind + str(error)[:_MAX_SENTENCE].encode("utf-8", "replace")


def unpack_answer(answer: bytes) -> str:
    """The text of an answer. Raises what the template raised."""
    kind, text = answer[:1], answer[1:].decode()
    if kind != _TEXT:
        raise _RAISED[kind](text)
    return text
