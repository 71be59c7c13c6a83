from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_svc import tiny
from tokenizer_svc.control_tokens import Control, ControlTokens, control_spellings

MARK = "\x01"
CONTROLS = (*tiny.CONTROLS, *tiny.TAGS)
TEXTS = st.lists(
    st.one_of(st.sampled_from([*CONTROLS, "<|im_", "start|>", "fox", " ", "\n\n", "ü", "<b>"]), st.text(max_size=3)),
    max_size=12,
).map("".join)


def controls(name: str) -> ControlTokens:
    return ControlTokens(tiny.ALL[name](), CONTROLS)


def test_control_tokens_are_special_tokens_and_those_of_the_template() -> None:
    tokenizer = tiny.ALL["gemma"]()
    assert control_spellings(tokenizer, "") == {*tiny.CONTROLS}
    assert control_spellings(tokenizer, "{{ '<think>\n\n' }}") == {*tiny.CONTROLS, "<think>"}


def test_positions_of_control_tokens() -> None:
    (start, end) = controls("byte_level").find("Zü <|im_start|>user<|im_end|>")
    ids = tiny.ALL["byte_level"]().token_to_id
    assert start == Control(ids("<|im_start|>") or 0, 3, 15)
    assert end == Control(ids("<|im_end|>") or 0, 19, 29)


def test_other_tokens_are_not_found() -> None:
    found = ControlTokens(tiny.ALL["gemma"](), ["<s>"]).find("<b>\n\n<s><|im_end|>")
    assert [(control.start, control.end) for control in found] == [(5, 8)]


@pytest.mark.parametrize("name", tiny.ALL)
@given(text=TEXTS)
def test_control_tokens_are_those_that_the_tokenizer_finds(name: str, text: str) -> None:
    tokenizer = tiny.ALL[name]()
    found = ControlTokens(tokenizer, CONTROLS)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    expected = [
        Control(token_id, *offsets)
        for token_id, offsets in zip(encoding.ids, encoding.offsets, strict=True)
        if token_id in found.ids.values()
    ]
    if name != "greedy":  # It also merges plain text into them.
        assert list(found.find(text)) == expected


def test_marked_spellings_are_skipped_and_positions_exclude_marks() -> None:
    marked = f"<{MARK}s>a<s>b<{MARK}{MARK}</s>{MARK}<s>"
    plain = marked.replace(MARK, "")
    found = list(controls("byte_level").find_unmarked(marked, MARK))
    assert [plain[control.start : control.end] for control in found] == ["<s>", "</s>", "<s>"]
    assert [control.start for control in found] == [4, 9, 13]


@pytest.mark.parametrize("text", ["＜s＞", "<\u200bs>", f"<{MARK}s>", "<ｓ>"])
def test_text_that_equals_a_spelling_only_after_normalization_is_text(text: str) -> None:
    tokens = controls("normalizing")
    assert list(tokens.find_unmarked(text, MARK)) == []
    (real,) = tokens.find_unmarked(f"{text}x  <s>", MARK)
    assert real.end - real.start == 5
