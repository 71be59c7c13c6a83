"""Errors over HTTP: status, headers, and always the OpenAI error body."""

from __future__ import annotations

import math
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import orjson

from gateway.policy.limits import MAX_MESSAGE_CHARS, MAX_PARAM_CHARS
from svclib.errors import InternalError, ServiceError, row_for

CLIENT_CLOSED: Final = 499
"""Status in logs and metrics for a request whose client disconnected; it is never sent."""


class ClientGone(Exception):
    """The client disconnected; no answer can be sent."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error response. ``retry_after`` is in seconds."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, error: ServiceError) -> Problem:
        """The response for an error of ``svclib.errors``."""
        row = row_for(error)
        return cls(row.http, error.message, row.type, error.param, row.code, error.retry_after)

    @classmethod
    def of_status(cls, status: int) -> Problem:
        """The response for an error that HTTP itself defines, such as a head that is too large."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return cls.of(InternalError())
        phrase = HTTPStatus(status).phrase
        return cls(status, phrase.lower(), code=phrase.lower().replace(" ", "_"))

    @property
    def error(self) -> dict[str, Any]:
        """The value of ``error`` in a body or in an event."""
        return {
            "message": _shorten(self.message, MAX_MESSAGE_CHARS),
            "type": self.type,
            "param": None if self.param is None else _shorten(self.param, MAX_PARAM_CHARS),
            "code": self.code,
        }

    @property
    def body(self) -> bytes:
        return orjson.dumps({"error": self.error})

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(self.body))]
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(self.retry_after))))
        if self.status == HTTPStatus.REQUEST_TIMEOUT:
            headers.append((b"connection", b"close"))
        return headers


def _shorten(text: str, length: int) -> str:
    """At most ``length`` characters, all of which can be encoded in UTF-8."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= length else text[: length - 1] + "…"
