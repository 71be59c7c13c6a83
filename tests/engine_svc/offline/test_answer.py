from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_svc.offline.answer import Answer
from engine_svc.offline.params import SamplingParams
from engine_svc.offline.text import Text
from engine_svc.output import ChoiceOutput, RequestOutput
from engine_svc.request import Request
from tests.engine_svc.offline.decoding import decode

alphabet = st.sampled_from(["a", "b", "ab", " a", "  ", "\n", "é", "😀", "日本", "<|im_end|>", ". The"])
texts = st.lists(alphabet, max_size=20).map("".join)
stops = st.lists(st.text(alphabet="ab \né😀日本.T", min_size=1, max_size=3), min_size=1, max_size=3)
cuts = st.lists(st.integers(1, 4), min_size=1, max_size=8)

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def tokens(text: Text, string: str) -> list[int]:
    return text.encode(string)


def search(text: Text, stop: list[str], token_ids: list[int], sizes: list[int], min_tokens: int = 0) -> tuple[str, int]:
    """The text up to a stop string, and how many tokens it took; 0 if none was found."""
    found, at, number = answer(text, stop, min_tokens), 0, 0
    while at < len(token_ids):
        size = sizes[number % len(sizes)]
        part = tuple(token_ids[at : at + size])
        if list(found.add(RequestOutput(0, [ChoiceOutput(0, part)]))):
            return found.result()["text"], len(found.result()["token_ids"])
        at, number = at + size, number + 1
    list(found.add(RequestOutput(0, [ChoiceOutput(0, (), finish_reason="length")])))
    return found.result()["text"].rstrip("\N{REPLACEMENT CHARACTER}"), 0


def answer(text: Text, stop: list[str], min_tokens: int) -> Answer:
    params = SamplingParams(max_tokens=100, min_tokens=min_tokens).resolve(100)
    request = Request("r", (1,), params, frozenset(), arrived_at=0.0)
    return Answer(request, tuple(stop), text)


def expected(text: Text, stop: list[str], token_ids: list[int], min_tokens: int) -> tuple[str, int]:
    """The same by searching the whole text after each token."""
    num_old = 0
    for count in range(1, len(token_ids) + 1):
        whole = decode(text, token_ids[:count]).rstrip("\N{REPLACEMENT CHARACTER}")
        if count > min_tokens:
            ends = [
                (end, order, string)
                for order, string in enumerate(stop)
                for end in range(num_old + 1, len(whole) + 1)
                if whole[:end].endswith(string)
            ]
            if ends:
                end, _, string = min(ends)
                return whole[: end - len(string)], count
        num_old = len(whole)
    return decode(text, token_ids).rstrip("\N{REPLACEMENT CHARACTER}"), 0


@relaxed
@given(texts, stops, cuts, st.integers(0, 6))
def test_as_if_the_whole_text_were_searched_after_each_token(
    text: Text, string: str, stop: list[str], sizes: list[int], min_tokens: int
) -> None:
    token_ids = tokens(text, string)
    assert search(text, stop, token_ids, sizes, min_tokens) == expected(text, stop, token_ids, min_tokens)


def test_of_stop_strings_that_end_together_the_first_listed(text: Text) -> None:
    token_ids = tokens(text, "one two three")
    assert search(text, ["two", "e two"], token_ids, [1])[0] == "one "
    assert search(text, ["e two", "two"], token_ids, [1])[0] == "on"


def test_the_stop_string_that_is_complete_first(text: Text) -> None:
    assert search(text, ["one two three", "two"], tokens(text, "one two three"), [3])[0] == "one "


@pytest.mark.parametrize("size", [1, 2, 5])
def test_bytes_of_a_character_in_several_tokens(text: Text, size: int) -> None:
    token_ids = tokens(text, "a 🦩 b")
    assert len(token_ids) > 4
    assert search(text, ["🦩"], token_ids, [size])[0] == "a "


def test_special_tokens_are_no_text(text: Text) -> None:
    token_ids = tokens(text, "one<|im_end|> two")
    assert search(text, ["e t"], token_ids, [1])[0] == "on"


def test_a_stop_string_may_spell_a_special_token(text: Text) -> None:
    token_ids = tokens(text, "one<|im_end|> two")
    assert search(text, ["<|im_end|>"], token_ids, [1]) == ("one", len(tokens(text, "one")) + 1)
