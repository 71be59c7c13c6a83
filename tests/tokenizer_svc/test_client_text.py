from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svclib.errors import InvalidRequest
from tokenizer_svc.client_text import ClientText, Marks, choose_marks

MARK = "\x01"
CONTROLS = ("<|im_start|>", "<|im_end|>", "<|object|>", "[INST]", "<think>", "</think>", "<tool_call>", "</tool_call>")
TEXT = ClientText(CONTROLS, "")
FRAGMENTS = st.sampled_from(
    ["<", "<|", "|>", ">", "im_start", "im_end", "<|im_", "start|>", "[", "INST", "]", "think", "/", "a", " ", "\n"]
)
TEXTS = st.lists(st.one_of(FRAGMENTS, st.sampled_from(CONTROLS)), max_size=8).map("".join)


def data(text: Any) -> Any:
    return TEXT.protect(text, MARK)


def unmarked(text: str) -> str:
    return text.replace(MARK, "")


def assert_no_control(text: str) -> None:
    assert not [control for control in CONTROLS if control in text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", "hello"),
        ("", ""),
        ("a < b", "a < b"),
        ("<|im_end|>", "<~|im_end|>"),
        ("x<|im_end|><|im_start|>y", "x<~|im_end|><~|im_start|>y"),
        ("see <think>", "see <~think>"),
        ("ends with <", "ends with <~"),
        ("ends with <|im_ \n", "ends with <|im_~ \n"),
        ("  start|> it", "  ~start|> it"),
        ("> quoted", "~> quoted"),
        (" im_start ", " im_start~ "),
    ],
)
def test_positions_of_marks(text: str, expected: str) -> None:
    assert data(text) == expected.replace("~", MARK)


@given(TEXTS)
def test_no_spelling_is_left_and_nothing_is_lost(text: str) -> None:
    broken = data(text)
    assert_no_control(broken)
    assert unmarked(broken) == text


@given(st.lists(TEXTS, max_size=4))
def test_strings_do_not_join_into_a_spelling(texts: list[str]) -> None:
    assert_no_control("".join(map(data, texts)))
    assert_no_control("".join(data(text).strip() for text in texts))


@given(TEXTS, st.sampled_from(CONTROLS), st.data())
def test_client_strings_do_not_complete_a_spelling_that_the_template_starts(
    text: str, control: str, cuts: st.DataObject
) -> None:
    start = cuts.draw(st.integers(0, len(control) - 1))
    end = cuts.draw(st.integers(start + 1, len(control)))
    for client in (control[start:end], text):
        glued = control[:start] + data(client) + control[end:]
        if client and end - start < len(control):
            assert_no_control(glued)


def test_all_strings_and_keys_of_a_value_are_checked() -> None:
    value = {"Q": ["<|im_end|>", {"<|im_end|>": 1}], "W": None, "X": 1.5, "Y": True, "description": "<think>"}
    assert data(value) == {
        "Q": [f"<{MARK}|im_end|>", {f"<{MARK}|im_end|>": 1}],
        "W": None,
        "X": 1.5,
        "Y": True,
        "description": f"<{MARK}think>",
    }


def test_keys_that_templates_look_up_are_kept() -> None:
    value = {"type": "Q", "name": "Q", "properties": {}}
    assert ClientText(["<|type|>", "<|name|>", "<|properties|>"], "").protect(value, MARK) == value


def test_names_keep_their_order() -> None:
    names = ["a", "age", "end", "end_date", "id", "im", "im_start", "objects", "zone"]
    assert [unmarked(name) for name in sorted(map(data, names))] == names


def test_words_that_the_template_compares_with_are_unchanged() -> None:
    assert ClientText(CONTROLS, "{% if x.type == 'object' %}").protect({"type": "object"}, MARK) == {"type": "object"}
    assert data("object") == f"object{MARK}"


def test_tags_in_assistant_text_are_kept_for_the_template() -> None:
    content = "<think>a</think><tool_call>b</tool_call><|im_end|>[INST]"
    message = {"role": "assistant", "content": content, "reasoning_content": "<think>"}
    assert TEXT.protect_message(message, MARK) == {
        "role": "assistant",
        "content": f"<think>a</think><tool_call>b</tool_call><{MARK}|im_end|>[{MARK}INST]",
        "reasoning_content": f"<{MARK}think>",
    }


@pytest.mark.parametrize("role", ["system", "developer", "user", "tool"])
def test_spellings_in_other_roles_do_not_count(role: str) -> None:
    message = {"role": role, "content": [{"type": "text", "text": "<think>"}], "name": "<|im_end|>"}
    assert TEXT.protect_message(message, MARK) == {
        "role": role,
        "content": [{"type": "text", "text": f"<{MARK}think>"}],
        "name": f"<{MARK}|im_end|>",
    }


def test_reasoning_tags_are_broken_even_if_they_are_not_tokens() -> None:
    assert ClientText([], "").protect("<think>", MARK) == f"<{MARK}think>"


# Marks


def test_marks_are_not_in_the_request() -> None:
    assert choose_marks([{"content": "\x01 \x03"}], None, {"a": "\\u0002"}) == Marks("\x04", "\x05")


def test_escapes_count_in_any_case_and_in_names() -> None:
    assert choose_marks({"\x01": '{"x": "\\U0002"}', "\\U000e": "\x03"}).broken == "\x04"


def test_no_mark_is_white_space() -> None:
    used: list[str] = []
    while len(used) < 21:
        used.append(choose_marks(used).broken)
    assert not [mark for mark in used if mark.isspace() or not mark.strip()]


def test_a_request_with_all_control_characters() -> None:
    everything = "".join(map(chr, range(0x1F)))
    with pytest.raises(InvalidRequest) as caught:
        choose_marks(everything)
    assert caught.value.param == "messages"


def test_marks_are_restored_from_json_escapes() -> None:
    marks, text = Marks("\x01", "\x02"), 'a\x01b"\\n\x02'
    assert marks.restored(json.dumps(text)) == '"a\x01b\\"\\\\n\x02"'
    nested = marks.restored(json.dumps(json.dumps(text)))
    assert re.sub("[\x01\x02]", "", nested) == json.dumps(json.dumps(re.sub("[\x01\x02]", "", text)))


def test_time_is_linear_in_the_length_of_the_text() -> None:
    # A search that restarts would find each of these many times.
    for hostile in ("<|im_" * 40_000, "<" * 200_000, "[INST" * 40_000):
        assert unmarked(data(hostile)) == hostile
