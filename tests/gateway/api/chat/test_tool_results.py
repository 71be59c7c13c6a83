from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.chat.read import read_chat
from gateway.api.chat.tool_results import check_results
from gateway.generation import request as chat
from svclib.errors import InvalidRequest

HI = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "Sunny."}


def calls(*ids: str) -> dict[str, Any]:
    made = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "sunny"}


def read(*messages: Any) -> None:
    read_chat({"model": "m", "messages": list(messages)}, reject_unknown=True)


@pytest.mark.parametrize(
    "messages",
    [
        [HI, calls("a"), result("a")],
        [HI, calls("a", "b"), result("b"), result("a")],
        [HI, calls("a", "b"), result("b")],
        [HI, calls("a"), HI],
        [HI, calls("a"), result("a"), ANSWER, HI, calls("a"), result("a")],
        [HI, calls("a"), result("a"), calls("a"), result("a")],
        [calls("a"), result("a")],
    ],
)
def test_valid_tool_results(messages: list[Any]) -> None:
    read(*messages)


@pytest.mark.parametrize(
    ("param", "messages"),
    [
        ("messages[2].tool_call_id", [HI, calls("a"), result("b")]),
        ("messages[3].tool_call_id", [HI, calls("a"), result("a"), result("a")]),
        ("messages[4].tool_call_id", [HI, calls("a", "b"), result("a"), result("b"), result("a")]),
        ("messages[1].tool_call_id", [HI, result("a")]),
        ("messages[0].tool_call_id", [result("a")]),
        ("messages[2].tool_call_id", [HI, ANSWER, result("a")]),
        ("messages[3].tool_call_id", [HI, calls("a"), HI, result("a")]),
        ("messages[3].tool_call_id", [HI, calls("a"), ANSWER, result("a")]),
        ("messages[4].tool_call_id", [HI, calls("a"), result("a"), calls("b"), result("a")]),
        ("messages[2].tool_call_id", [HI, calls("a"), {"role": "tool", "content": "x"}]),
        ("messages[1].tool_calls[2].id", [HI, calls("a", "b", "a"), result("a")]),
    ],
)
def test_invalid_tool_results_name_the_field(param: str, messages: list[Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(*messages)
    assert caught.value.param == param
    assert caught.value.message.startswith(param)


def test_error_messages() -> None:
    for messages, said in (
        ([HI, calls("a"), result("b")], "is not the id of a call"),
        ([HI, calls("a"), result("a"), result("a")], "already has a result"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            read(*messages)


@given(st.lists(st.lists(st.sampled_from("abcde"), unique=True, min_size=1), max_size=5), st.data())
def test_results_after_their_calls_are_valid(turns: list[list[str]], data: st.DataObject) -> None:
    messages = [chat.Message("user", "hi")]
    for ids in turns:
        messages.append(chat.Message("assistant", None, tool_calls=tuple(chat.ToolCall(i, "f", "{}") for i in ids)))
        answered = data.draw(st.permutations(ids))[: data.draw(st.integers(0, len(ids)))]
        messages += [chat.Message("tool", "x", tool_call_id=each) for each in answered]
    check_results(messages)
