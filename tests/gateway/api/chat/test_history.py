"""Messages that clients send back from other servers' answers: accepted, with nothing lost."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage, ParsedChatCompletionMessage

from gateway.api.chat.read import read_chat
from gateway.generation import request as chat
from tests.gateway.api.chat.reading import conversation

HI = {"role": "user", "content": "hi"}
WHY = {"role": "user", "content": "why?"}


def sent_back(message: dict[str, Any]) -> chat.Message:
    """An assistant message, read between two user messages with unknown fields rejected."""
    document = {"model": "m", "messages": [HI, message, WHY]}
    return conversation(read_chat(document, reject_unknown=True)).messages[1]


def call(arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}} | more


@pytest.mark.parametrize("arguments", ["", " ", "\n", None])
def test_missing_arguments_are_an_empty_object(arguments: str | None) -> None:
    assert sent_back({"role": "assistant", "content": None, "tool_calls": [call(arguments)]}).tool_calls == (
        chat.ToolCall("c1", "f", "{}"),
    )
    missing = {"id": "c1", "function": {"name": "f"}}
    assert sent_back({"role": "assistant", "tool_calls": [missing]}).tool_calls == (chat.ToolCall("c1", "f", "{}"),)


def test_arguments_are_not_rewritten() -> None:
    for text in ('{"a":  1}', " {} ", "null", "[", "0"):
        assert sent_back({"role": "assistant", "tool_calls": [call(text)]}).tool_calls[0].arguments == text


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"content": None, "refusal": "I cannot."}, "I cannot."),
        ({"content": "", "refusal": "I cannot."}, "I cannot."),
        ({"content": [], "refusal": "I cannot."}, "I cannot."),
        ({"content": "Sorry.", "refusal": "I cannot."}, ("Sorry.", "I cannot.")),
        ({"content": "I cannot.", "refusal": "I cannot."}, "I cannot."),
        ({"content": "x", "refusal": ""}, "x"),
        ({"content": [{"type": "refusal", "refusal": "I cannot."}]}, ("I cannot.",)),
        ({"content": [{"type": "refusal", "refusal": "I cannot."}], "refusal": "I cannot."}, ("I cannot.",)),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}], "refusal": "c"},
            ("a", "b", "c"),
        ),
        ({"content": []}, ""),
        ({"content": None}, None),
        ({}, None),
        ({"content": None, "tool_calls": []}, None),
        ({"content": [{"type": "output_text", "text": "x", "annotations": []}]}, ("x",)),
    ],
    ids=str,
)
def test_content_and_refusal(message: dict[str, Any], content: Any) -> None:
    assert sent_back({"role": "assistant"} | message) == chat.Message("assistant", content)


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "thinking", "thinking": "hm", "signature": "abc"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]},
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "reasoning", "text": "hm"},
    ],
)
def test_reasoning_parts(thinking: dict[str, Any]) -> None:
    parts = [thinking, {"type": "text", "text": "x"}]
    assert sent_back({"role": "assistant", "content": parts}) == chat.Message("assistant", ("x",), reasoning="hm")
    twice = {"role": "assistant", "content": parts, "reasoning_content": "hm"}
    assert sent_back(twice) == chat.Message("assistant", ("x",), reasoning="hm")


CALLING = chat.Message("assistant", None, tool_calls=(chat.ToolCall("c1", "f", '{"a":1}'),))

REPLAYED: list[tuple[str, dict[str, Any], chat.Message]] = [
    (
        "openai, model_dump",
        ChatCompletionMessage.model_validate({"role": "assistant", "content": "x", "refusal": None}).model_dump(),
        chat.Message("assistant", "x"),
    ),
    (
        "openai, model_dump of calls",
        ChatCompletionMessage.model_validate(
            {"role": "assistant", "content": None, "tool_calls": [call('{"a":1}')], "annotations": []}
        ).model_dump(),
        CALLING,
    ),
    (
        "openai, parse",
        ParsedChatCompletionMessage[Any]
        .model_validate(
            {
                "role": "assistant",
                "content": '{"a":1}',
                "parsed": {"a": 1},
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a":1}', "parsed_arguments": {"a": 1}},
                    }
                ],
            }
        )
        .model_dump(),
        chat.Message("assistant", '{"a":1}', tool_calls=CALLING.tool_calls),
    ),
    (
        "vLLM",
        {
            "role": "assistant", "content": "x", "refusal": None, "annotations": None, "audio": None,
            "function_call": None, "tool_calls": [], "reasoning": "hm", "reasoning_content": "hm",
        },
        chat.Message("assistant", "x", reasoning="hm"),
    ),
    (
        "SGLang",
        {"role": "assistant", "content": None, "reasoning_content": None, "tool_calls": [call('{"a":1}', index=0)]},
        CALLING,
    ),
    (
        "llama.cpp",
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call('{"a":1}')]},
        chat.Message("assistant", "", tool_calls=CALLING.tool_calls, reasoning="hm"),
    ),
    (
        "litellm",
        {
            "role": "assistant", "content": "x", "tool_calls": None, "function_call": None,
            "provider_specific_fields": {"refusal": None}, "reasoning_content": "hm",
            "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
        },
        chat.Message("assistant", "x", reasoning="hm"),
    ),
    (
        "litellm, calls",
        {
            "role": "assistant", "content": None,
            "tool_calls": [call('{"a":1}', provider_specific_fields={"thought_signature": "s"}, index=0)],
        },
        CALLING,
    ),
    (
        "OpenRouter",
        {
            "role": "assistant", "content": "x", "refusal": None, "reasoning": "hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "format": None, "index": 0}],
        },
        chat.Message("assistant", "x", reasoning="hm"),
    ),
    (
        "Anthropic's caching",
        {"role": "assistant", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        chat.Message("assistant", ("x",)),
    ),
    (
        "LangChain",
        {"role": "assistant", "content": [{"type": "text", "text": "x", "index": 0}], "name": None},
        chat.Message("assistant", ("x",)),
    ),
    (
        "pieces of a stream put together",
        {"role": "assistant", "content": None, "tool_calls": [call('{"a":1}', type=None, index=0)]},
        CALLING,
    ),
    (
        "cut while thinking",
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": None},
        chat.Message("assistant", None, reasoning="hm"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "read_as"), [row[1:] for row in REPLAYED], ids=[row[0] for row in REPLAYED])
def test_replayed_messages_of_clients(message: dict[str, Any], read_as: chat.Message) -> None:
    assert sent_back(message) == read_as


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_empty_part_list_is_an_empty_text(role: str) -> None:
    document = {"model": "m", "messages": [{"role": role, "content": []}, HI]}
    assert conversation(read_chat(document, reject_unknown=True)).messages[0] == chat.Message(role, "")


def test_empty_tool_result() -> None:
    calling = {"role": "assistant", "tool_calls": [call()]}
    document = {"model": "m", "messages": [HI, calling, {"role": "tool", "tool_call_id": "c1", "content": []}]}
    assert conversation(read_chat(document, reject_unknown=True)).messages[2].content == ""
