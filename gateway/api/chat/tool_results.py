"""Matching tool results to tool calls.

Results follow the assistant turn with their calls, in any order, at most one for each call. Not every call needs a
result: a client may have been interrupted. vLLM, SGLang and llama.cpp accept that, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.generation import request as neutral
from svclib.errors import InvalidRequest


def check_results(messages: Sequence[neutral.Message]) -> None:
    """Raises ``InvalidRequest`` for the first result without a call, and for a second result of one call."""
    open_calls: set[str | None] = set()
    answered: set[str | None] = set()
    for number, message in enumerate(messages):
        if message.role != "tool":
            open_calls, answered = _call_ids(message, f"messages[{number}]"), set()
            continue
        if message.tool_call_id not in open_calls:
            raise _error(number, message, answered)
        open_calls.remove(message.tool_call_id)
        answered.add(message.tool_call_id)


def _call_ids(message: neutral.Message, param: str) -> set[str | None]:
    seen: set[str | None] = set()
    for number, call in enumerate(message.tool_calls):
        if call.id in seen:
            place = f"{param}.tool_calls[{number}].id"
            raise InvalidRequest(f"{place} must be unique within the message", param=place)
        seen.add(call.id)
    return seen


def _error(number: int, message: neutral.Message, answered: set[str | None]) -> InvalidRequest:
    param = f"messages[{number}].tool_call_id"
    if message.tool_call_id in answered:
        return InvalidRequest(f"{param} is the id of a call that already has a result", param=param)
    return InvalidRequest(f"{param} is not the id of a call in the preceding assistant message", param=param)
