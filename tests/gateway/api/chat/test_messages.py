from __future__ import annotations

from typing import Any

import pytest

from gateway.api.chat.read import read_chat
from gateway.generation import request as chat
from gateway.policy import limits
from svclib.errors import InvalidRequest, Unsupported
from tests.gateway.api.chat.reading import conversation

HI = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":  1}'}}


def read(*messages: Any) -> tuple[chat.Message, ...]:
    return conversation(read_chat({"model": "m", "messages": list(messages)}, reject_unknown=True)).messages


def fault(*messages: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(*messages)
    return caught.value


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_content_is_a_string_or_texts(role: str) -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": ""}]
    assert read({"role": role, "content": "x"}) == (chat.Message(role, "x"),)
    assert read({"role": role, "content": ""}) == (chat.Message(role, ""),)
    assert read({"role": role, "content": parts}) == (chat.Message(role, ("A", "")),)


def test_a_turn_with_calls() -> None:
    (message,) = read({"role": "assistant", "content": None, "tool_calls": [CALL]})
    assert message == chat.Message("assistant", None, tool_calls=(chat.ToolCall("c1", "f", '{"a":  1}'),))
    (message,) = read({"role": "assistant", "tool_calls": [CALL | {"type": "function"}]})
    assert message.content is None


def test_a_tool_result() -> None:
    result = {"role": "tool", "tool_call_id": "c1", "content": "sunny", "name": "f"}
    assert read(HI, {"role": "assistant", "tool_calls": [CALL]}, result)[2] == chat.Message(
        "tool", "sunny", name="f", tool_call_id="c1"
    )


def test_replayed_answer_is_accepted() -> None:
    answer: dict[str, Any] = {
        "role": "assistant", "content": "x", "refusal": None, "audio": None, "function_call": None, "tool_calls": None,
        "annotations": [], "reasoning_content": "hm", "reasoning": "hm",
    }  # fmt: skip
    assert read(HI, answer)[1] == chat.Message("assistant", "x", reasoning="hm")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_has_two_names(name: str) -> None:
    assert read(HI, {"role": "assistant", "content": "x", name: "hm"})[1].reasoning == "hm"


def test_reasoning_aliases_must_be_equal() -> None:
    error = fault(HI, {"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "b"})
    assert error.param == "messages[1].reasoning"


FAULTS: list[tuple[str, Any]] = [
    ("messages[1]", 5),
    ("messages[1]", None),
    ("messages[1]", "user"),
    ("messages[1]", []),
    ("messages[1].role", {}),
    ("messages[1].role", {"role": None, "content": "x"}),
    ("messages[1].role", {"role": "alien", "content": "x"}),
    ("messages[1].role", {"role": "function", "content": "x", "name": "f"}),
    ("messages[1].role", {"role": ["user"], "content": "x"}),
    ("messages[1].role", {"role": "User", "content": "x"}),
    ("messages[1].content", {"role": "user"}),
    ("messages[1].content", {"role": "user", "content": None}),
    ("messages[1].content", {"role": "system", "content": None}),
    ("messages[1].content", {"role": "user", "content": 7}),
    ("messages[1].content", {"role": "user", "content": True}),
    ("messages[1].content", {"role": "user", "content": {"type": "text", "text": "x"}}),
    ("messages[1].content[0].type", {"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}),
    ("messages[1].content[0].type", {"role": "tool", "tool_call_id": "c", "content": [{"type": "thinking"}]}),
    ("messages[1].content[0].refusal", {"role": "assistant", "content": [{"type": "refusal"}]}),
    ("messages[1].content[0].thinking", {"role": "assistant", "content": [{"type": "thinking", "thinking": [5]}]}),
    ("messages[1].refusal", {"role": "user", "content": "x", "refusal": "no"}),
    ("messages[1].refusal", {"role": "assistant", "content": "x", "refusal": 5}),
    ("messages[1].content", {"role": "tool", "tool_call_id": "c1"}),
    ("messages[1].content[0]", {"role": "user", "content": ["x"]}),
    ("messages[1].content[0]", {"role": "user", "content": [None]}),
    ("messages[1].content[0]", {"role": "user", "content": [["x"]]}),
    ("messages[1].content[0].type", {"role": "user", "content": [{"text": "x"}]}),
    ("messages[1].content[0].type", {"role": "user", "content": [{"type": 5, "text": "x"}]}),
    ("messages[1].content[0].type", {"role": "user", "content": [{"type": "smell", "text": "x"}]}),
    ("messages[1].content[0].text", {"role": "user", "content": [{"type": "text"}]}),
    ("messages[1].content[0].text", {"role": "user", "content": [{"type": "text", "text": None}]}),
    ("messages[1].content[0].text", {"role": "user", "content": [{"type": "text", "text": 5}]}),
    ("messages[1].content[0].text", {"role": "user", "content": [{"type": "text", "text": ["x"]}]}),
    ("messages[1].name", {"role": "user", "content": "x", "name": 5}),
    ("messages[1].name", {"role": "user", "content": "x", "name": "x" * (limits.MAX_NAME_CHARS + 1)}),
    ("messages[1].tool_call_id", {"role": "tool", "content": "x"}),
    ("messages[1].tool_call_id", {"role": "tool", "content": "x", "tool_call_id": None}),
    ("messages[1].tool_call_id", {"role": "tool", "content": "x", "tool_call_id": ""}),
    ("messages[1].tool_call_id", {"role": "tool", "content": "x", "tool_call_id": 5}),
    ("messages[1].tool_call_id", {"role": "user", "content": "x", "tool_call_id": "c1"}),
    ("messages[1].tool_calls", {"role": "user", "content": "x", "tool_calls": [CALL]}),
    ("messages[1].tool_calls", {"role": "assistant", "tool_calls": "f"}),
    ("messages[1].tool_calls", {"role": "assistant", "tool_calls": {"0": CALL}}),
    ("messages[1].tool_calls", {"role": "assistant", "tool_calls": [CALL] * (limits.MAX_TOOL_CALLS + 1)}),
    ("messages[1].tool_calls[0]", {"role": "assistant", "tool_calls": [5]}),
    ("messages[1].tool_calls[0].id", {"role": "assistant", "tool_calls": [CALL | {"id": None}]}),
    ("messages[1].tool_calls[0].id", {"role": "assistant", "tool_calls": [CALL | {"id": ""}]}),
    ("messages[1].tool_calls[0].type", {"role": "assistant", "tool_calls": [CALL | {"type": "custom"}]}),
    ("messages[1].tool_calls[0].function", {"role": "assistant", "tool_calls": [CALL | {"function": "f"}]}),
    (
        "messages[1].tool_calls[0].function.name",
        {"role": "assistant", "tool_calls": [CALL | {"function": {"arguments": "{}"}}]},
    ),
    (
        "messages[1].tool_calls[0].function.arguments",
        {"role": "assistant", "tool_calls": [CALL | {"function": {"name": "f", "arguments": {"a": 1}}}]},
    ),
    ("messages[1].tool_calls[1].id", {"role": "assistant", "tool_calls": [CALL, CALL]}),
    ("messages[1].reasoning_content", {"role": "user", "content": "x", "reasoning_content": "hm"}),
    ("messages[1].reasoning", {"role": "assistant", "content": "x", "reasoning": 5}),
]


@pytest.mark.parametrize(("param", "message"), FAULTS, ids=lambda value: str(value)[:80])
def test_errors_name_the_field(param: str, message: Any) -> None:
    error = fault(HI, message)
    assert error.param == param
    assert error.message.startswith(param)


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url", "input_image"])
def test_media_parts_are_unsupported(kind: str) -> None:
    part = {"type": kind, kind: {"url": "http://169.254.169.254/x"}}
    error = fault({"role": "user", "content": [{"type": "text", "text": "look"}, part]})
    assert isinstance(error, Unsupported)
    assert error.param == "messages[0].content[1]"


@pytest.mark.parametrize("name", ["audio", "function_call", "images", "prefix", "partial", "tools"])
def test_unsupported_message_fields(name: str) -> None:
    error = fault(HI, {"role": "assistant", "content": "x", name: {"id": "x"}})
    assert isinstance(error, Unsupported)
    assert error.param == f"messages[1].{name}"
    nothing: Any
    for nothing in (None, False, []):
        read(HI, {"role": "assistant", "content": "x", name: nothing})


def test_at_the_limits() -> None:
    calls = [CALL | {"id": str(number).zfill(limits.MAX_NAME_CHARS)} for number in range(limits.MAX_TOOL_CALLS)]
    (message,) = read({"role": "assistant", "tool_calls": calls})
    assert len(message.tool_calls) == limits.MAX_TOOL_CALLS
    assert read({"role": "user", "content": "x", "name": "n" * limits.MAX_NAME_CHARS})


def test_parts_are_bounded() -> None:
    part = {"type": "text", "text": "x"}
    assert read({"role": "user", "content": [part] * limits.MAX_PARTS})
    assert fault({"role": "user", "content": [part] * (limits.MAX_PARTS + 1)}).param == "messages[0].content"
