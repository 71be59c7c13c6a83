"""The protocol between ``renderer`` and its child processes.

A request is JSON, a NUL byte (which JSON cannot contain), and the source of a template. The JSON is the variables of a
rendering, or ``null`` to ask which variables the template reads. Each request has the source, so any child can answer.

An answer is one byte for its kind, then UTF-8: a text, or the message of the template's error.
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
_MAX_MESSAGE: Final = 4000


def pack_request(source: bytes, variables: Mapping[str, Any] | None) -> bytes:
    """``variables`` are JSON values without lone surrogates; None asks which variables the template reads."""
    return json.dumps(variables, ensure_ascii=False).encode() + _SEPARATOR + source


def unpack_request(message: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """The source and the variables."""
    variables, _, source = message.partition(_SEPARATOR)
    return source, json.loads(variables)


def pack_text(text: str) -> bytes:
    """Raises ``UnicodeEncodeError`` for lone surrogates."""
    return _TEXT + text.encode()


def pack_error(error: Exception) -> bytes:
    """``error`` is one of the template's errors."""
    kind = next(kind for kind, raised in _RAISED.items() if isinstance(error, raised))
    return kind + str(error)[:_MAX_MESSAGE].encode("utf-8", "replace")


def unpack_answer(answer: bytes) -> str:
    """The text of an answer. Raises the template's error."""
    kind, text = answer[:1], answer[1:].decode()
    if kind != _TEXT:
        raise _RAISED[kind](text)
    return text
