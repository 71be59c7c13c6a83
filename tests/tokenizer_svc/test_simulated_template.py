from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfiles.simulated import simulated_tokenizer
from modelfiles.tokenizer import load_tokenizer
from protos import simulated
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.conversation import Conversation, Message, Tool, ToolCall
from tokenizer_svc.prompt_tokenizer import PromptTokenizer

SIMULATED = PromptTokenizer(load_tokenizer(simulated.MODEL_NAME), compiled)
CALL = ToolCall("c1", "get_weather", '{"city":"Zürich"}')


def text_of(*messages: Message, **more: object) -> str:
    return SIMULATED.render(Conversation(messages, **more)).text  # type: ignore[arg-type]


def test_the_vocabulary_is_that_of_the_contract() -> None:
    tokenizer = simulated_tokenizer()
    assert SIMULATED.vocab_size == simulated.VOCAB_SIZE
    assert SIMULATED.eos_token_ids == (simulated.EOS_TOKEN_ID,)
    assert SIMULATED.bos_token_id is None
    for offset, token in enumerate(simulated.CONTROL_TOKENS):
        assert tokenizer.token_to_id(token) == simulated.NUM_BYTES + offset


@given(st.text())
def test_a_texts_tokens_are_its_bytes(text: str) -> None:
    ids = SIMULATED.tokenize(text, "x", add_special_tokens=False, parse_special_tokens=False)
    assert bytes(ids) == text.encode()
    assert SIMULATED.detokenize(ids, skip_special_tokens=False) == text


@given(st.binary())
def test_any_bytes(raw: bytes) -> None:
    assert bytes(SIMULATED.tokenize(raw, "x", add_special_tokens=False, parse_special_tokens=False)) == raw


def test_control_tokens_on_request() -> None:
    ids = SIMULATED.tokenize("a<|im_end|>", "x", add_special_tokens=False, parse_special_tokens=True)
    assert ids == [ord("a"), simulated.EOS_TOKEN_ID]
    assert SIMULATED.detokenize(ids, skip_special_tokens=True) == "a"


def test_a_conversation() -> None:
    assert text_of(Message("user", "hi"), Message("assistant", "ho"), Message("user", "x")) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\nho<|im_end|>\n"
        "<|im_start|>user\nx<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_system_turns_stay_where_they_are() -> None:
    text = text_of(Message("system", "a"), Message("user", "b"), Message("system", "c"), Message("user", "d"))
    assert text.startswith(
        "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>system\nc<|im_end|>\n"
    )


def test_tools_and_their_use() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    text = text_of(
        Message("user", "q"),
        Message("assistant", "Hm.", tool_calls=(CALL, CALL), reasoning_content="why"),
        Message("tool", "1"),
        Message("tool", "2"),
        tools=(Tool("get_weather", "w", json.dumps(parameters)),),
        add_generation_prompt=False,
    )
    listed = {"type": "function", "function": {"name": "get_weather", "description": "w", "parameters": parameters}}
    assert f"<tools>\n{json.dumps(listed)}\n</tools>" in text
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
    assert text.endswith(
        f"<|im_start|>assistant\n<think>\nwhy\n</think>\n\nHm.\n{call}\n{call}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
    )


@pytest.mark.parametrize("content", ["", None])
def test_a_call_without_text(content: str | None) -> None:
    text = text_of(Message("user", "q"), Message("assistant", content, tool_calls=(CALL,)))
    assert "<|im_start|>assistant\n<tool_call>\n" in text


@pytest.mark.parametrize(
    ("kwargs", "ending"),
    [
        ("", ""),
        ('{"enable_thinking": true}', ""),
        ('{"enable_thinking": false}', "<think>\n\n</think>\n\n"),
        ('{"thinking": true}', "<think>\n"),
        ('{"thinking": false}', ""),
    ],
)
def test_the_reasoning_switches(kwargs: str, ending: str) -> None:
    assert text_of(Message("user", "q"), template_kwargs=kwargs).endswith(f"<|im_start|>assistant\n{ending}")


def test_its_formats() -> None:
    assert (SIMULATED.tool_format, SIMULATED.reasoning_format) == ("hermes", "think")
