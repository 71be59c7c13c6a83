from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svclib.errors import InvalidRequest
from tests.tokenizer_svc import tiny
from tokenizer_svc.client_text import ClientText
from tokenizer_svc.control_tokens import ControlTokens
from tokenizer_svc.encoder import Encoder

MARK = "\x01"
CONTROLS = (*tiny.CONTROLS, *tiny.TAGS)
CLIENT = ClientText(CONTROLS, "")
PIECES = st.sampled_from(
    [*CONTROLS, "<|im_", "start|>", "<", "fox", " ", "  ", "\n", "\n\n", "ü", "你", "<b>", "u\u0308"]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=3).filter(lambda text: MARK not in text)), max_size=8).map("".join)


def encoder(name: str) -> Encoder:
    return Encoder(tiny.ALL[name](), CONTROLS)


def reference(name: str, text: str) -> list[int]:
    ids: list[int] = tiny.ALL[name]().encode(text, add_special_tokens=False).ids
    return ids


def spelled(name: str, ids: list[int]) -> list[str]:
    """The control tokens among ids."""
    spellings = {tiny.ALL[name]().token_to_id(text): text for text in CONTROLS}
    return [spellings[token_id] for token_id in ids if token_id in spellings]


@pytest.mark.parametrize("name", tiny.ALL)
@given(text=TEXTS)
def test_a_prompt_without_marks_is_encoded_normally(name: str, text: str) -> None:
    assert encoder(name).encode_prompt(text, MARK) == (reference(name, text), text)


@pytest.mark.parametrize("name", tiny.ALL)
@given(text=TEXTS, cut=st.integers(0, 30))
def test_marks_that_break_no_spelling_change_nothing(name: str, text: str, cut: int) -> None:
    marked = f"{text[:cut]}{MARK}{text[cut:]}"
    spellings = [(c.start, c.end) for c in ControlTokens(tiny.ALL[name](), CONTROLS).find(text)]
    if not any(start < cut < end for start, end in spellings):
        assert encoder(name).encode_prompt(marked, MARK) == (reference(name, text), text)


@pytest.mark.parametrize("name", [name for name in tiny.ALL if name != "greedy"])
@given(text=TEXTS)
def test_text_around_control_tokens_is_encoded_normally(name: str, text: str) -> None:
    controls = ControlTokens(tiny.ALL[name](), CONTROLS).find(text)
    assert list(encoder(name).encode_around(text, controls)) == reference(name, text)


@pytest.mark.parametrize("name", tiny.ALL)
@given(system=TEXTS, user=TEXTS)
def test_only_the_templates_control_tokens_are_tokens(name: str, system: str, user: str) -> None:
    def prompt(first: str, second: str) -> str:
        return f"<s>{first}<|im_start|>user\n{second}<|im_end|>\n<think>\n"

    marked = prompt(CLIENT.protect(system, MARK), CLIENT.protect(user, MARK))
    ids, text = encoder(name).encode_prompt(marked, MARK)
    assert text == prompt(system, user)
    assert spelled(name, ids) == ["<s>", "<|im_start|>", "<|im_end|>", "<think>"]


@given(user=TEXTS)
def test_the_joined_text_is_complete(user: str) -> None:
    marked = f"<|im_start|>{CLIENT.protect(user, MARK)}<|im_end|>"
    ids, text = encoder("gemma").encode_prompt(marked, MARK)
    assert encoder("gemma").decode(ids, skip_special_tokens=False) == text.replace("▁", " ")


def test_a_broken_spelling_is_encoded_as_the_text_that_it_is() -> None:
    ids, _ = encoder("byte_level").encode_prompt(f"<s>a <{MARK}s> b</s>", MARK)
    tokenizer = tiny.ALL["byte_level"]()
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<s>a <s> b</s>"
    assert [tokenizer.id_to_token(token_id) for token_id in ids].count("<s>") == 1


def test_text_with_and_without_special_tokens() -> None:
    full, text = encoder("byte_level"), "<s>hi</s>"
    parsed = full.encode(text, add_special_tokens=False, parse_special_tokens=True)
    plain = full.encode(text, add_special_tokens=False, parse_special_tokens=False)
    assert spelled("byte_level", parsed) == ["<s>", "</s>"]
    assert spelled("byte_level", plain) == []
    assert full.decode(plain, skip_special_tokens=True) == text
    assert full.decode(parsed, skip_special_tokens=True) == "hi"
    assert full.decode(parsed, skip_special_tokens=False) == text


def test_text_inside_a_longer_text() -> None:
    full = encoder("sentencepiece")
    at_start = full.encode("fox", add_special_tokens=False, parse_special_tokens=True)
    assert full.decode(at_start, skip_special_tokens=False) == " fox"
    assert full.decode(full.encode_inside("fox", parse_special_tokens=False), skip_special_tokens=False) == "fox"
    inside = full.encode_inside("fox<s>", parse_special_tokens=True)
    assert spelled("sentencepiece", inside) == ["<s>"]
    assert spelled("sentencepiece", full.encode_inside("fox<s>", parse_special_tokens=False)) == []


def test_ids_outside_the_vocabulary() -> None:
    full = encoder("byte_level")
    assert full.decode([full.vocab_size - 1], skip_special_tokens=False) == "</tool_call>"
    with pytest.raises(InvalidRequest) as caught:
        full.decode([0, full.vocab_size], skip_special_tokens=False)
    assert caught.value.param == "token_ids[1]"
    assert full.decode([], skip_special_tokens=False) == ""


def test_truncation_and_padding_settings_are_ignored() -> None:
    tokenizer = tiny.byte_level()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    ids, _ = Encoder(tokenizer, CONTROLS).encode_prompt("The quick brown fox jumps", MARK)
    assert len(ids) == len(reference("byte_level", "The quick brown fox jumps"))


LONG = "The quick brown fox jumps over the lazy dog. " * 30_000


@pytest.mark.parametrize(
    "work",
    [
        lambda full: full.encode_prompt(LONG, MARK),
        lambda full: full.encode_prompt(f"<s>{LONG}<{MARK}s>", MARK),
        lambda full: full.encode(LONG, add_special_tokens=True, parse_special_tokens=True),
        lambda full: full.encode(LONG, add_special_tokens=True, parse_special_tokens=False),
        lambda full: full.encode_inside(LONG, parse_special_tokens=True),
        lambda full: full.decode([40] * 1_000_000, skip_special_tokens=True),
    ],
)
def test_other_threads_run_while_a_long_text_is_encoded(work: Callable[[Encoder], object]) -> None:
    full, turns, ended = encoder("byte_level"), 0, threading.Event()

    def turn() -> None:
        nonlocal turns
        while not ended.wait(0.001):
            turns += 1

    thread = threading.Thread(target=turn)
    thread.start()
    before = turns
    work(full)
    during = turns - before
    ended.set()
    thread.join()
    assert during > 20, "a call that holds the GIL lets nobody have a turn"
