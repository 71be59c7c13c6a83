"""Server-sent events in the form of OpenAI's APIs."""

from __future__ import annotations

from typing import Final

from gateway.http.errors import Problem

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
PING: Final = b": ping\n\n"
DONE: Final = b"data: [DONE]\n\n"


def error_event(problem: Problem) -> bytes:
    """The last event of a stream that failed."""
    return b"".join((b"data: ", problem.body, b"\n\n"))
