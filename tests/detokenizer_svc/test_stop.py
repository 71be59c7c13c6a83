from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.stop import MAX_STOP_LENGTH, MAX_STOP_STRINGS, StopMatcher, check_stop_strings
from svclib.errors import InvalidRequest
from tests.detokenizer_svc.given import SIZES, cut, cut_by, run, vocabulary_of

strings = st.text(alphabet="ab", min_size=1, max_size=5)
stops = st.lists(strings, min_size=1, max_size=4)
texts = st.text(alphabet="abc", max_size=40)


def naive(text: str, stop: list[str], min_characters: int = 0) -> tuple[str, str | None]:
    """The text before the stop string that is complete first, and that stop string."""
    for end in range(min_characters + 1, len(text) + 1):
        for string in stop:
            if text[:end].endswith(string):
                return text[: end - len(string)], string
    return text, None


def held(text: str, stop: list[str]) -> int:
    """Length of the longest suffix of the text that is a proper prefix of a stop string."""
    return max((n for string in stop for n in range(len(string)) if text.endswith(string[:n])), default=0)


@given(texts, stops, st.lists(st.integers(0, 4), max_size=30), st.integers(0, 8))
def test_any_strings_in_any_pieces(text: str, stop: list[str], sizes: list[int], min_characters: int) -> None:
    matcher = StopMatcher(stop)
    out, read = "", ""
    for piece in cut_by(text, sizes):
        out += matcher.feed(piece, min_characters=min_characters)
        read += piece
        if matcher.matched:
            break
        if not min_characters:
            assert len(out) == len(read) - held(read, stop)
    expected, matched = naive(text, stop, min_characters)
    assert matcher.matched == matched
    assert out + ("" if matched else matcher.interrupt()) == expected
    if matched:
        assert matcher.num_characters == len(expected) + len(matched)


@given(texts, texts, stops)
def test_nothing_matches_across_an_interruption(left: str, right: str, stop: list[str]) -> None:
    matcher = StopMatcher(stop)
    out = matcher.feed(left)
    if matcher.matched is None:
        out += matcher.interrupt(7)
        assert out == left
        out += matcher.feed(right)
        assert out == left + (naive(right, stop)[0] if matcher.matched else right[: len(right) - held(right, stop)])
        assert matcher.num_characters == len(left) + 7 + len(
            right if matcher.matched is None else naive(right, stop)[0] + matcher.matched
        )


ROWS = [
    (["ABC ", "DEF", "G", "HI", "J", "K"], ["DEFGHIJ"], "ABC ", "DEFGHIJ", 5),
    (["a", "a", "a", "b", "c"], ["aab"], "a", "aab", 4),
    (["ABC", "DEFX"], ["DE"], "ABC", "DE", 2),
    (["ab", "cab", "x"], ["abx"], "abc", "abx", 3),
    (["a", "b", "c"], ["abd"], "abc", None, 3),
    (["ab"], ["ab"], "", "ab", 1),
    (["one two"], ["two", "one"], "", "one", 1),
    (["xaby"], ["ab", "xab"], "x", "ab", 1),
    (["xaby"], ["xab", "ab"], "", "xab", 1),
    (["xab", "cd"], ["abcd", "b"], "xa", "b", 1),
    (["京", "都", "市"], ["都市"], "京", "都市", 3),
    (["\n", "\n", "Q"], ["\n\n"], "", "\n\n", 2),
    (["aa", "aa"], ["aaaa", "aaaaa"], "", "aaaa", 2),
    (["[", "]", "^-"], ["]^"], "[", "]^", 3),
]


@pytest.mark.parametrize(("pieces", "stop", "content", "matched", "num_tokens"), ROWS)
@pytest.mark.parametrize("size", SIZES)
def test_rows(
    pieces: list[str], stop: list[str], content: str, matched: str | None, num_tokens: int, size: int
) -> None:
    vocabulary = vocabulary_of(*(piece.encode() for piece in pieces))
    output = run(FormatSpec(stop=tuple(stop)), cut(range(len(pieces)), size), vocabulary=vocabulary, reason="length")
    assert output.ending is not None
    assert output.content == content
    assert output.ending.matched_stop == matched
    assert output.ending.finish_reason == ("stop" if matched else "length")
    assert output.ending.completion_tokens == num_tokens == output.num_tokens


@pytest.mark.parametrize(
    ("min_tokens", "content", "num_tokens"),
    [(0, "", 1), (1, ".a", 3), (2, ".a", 3), (3, ".a.a", 5), (4, ".a.a", 5), (5, ".a.a.", 6), (6, ".a.a..", None)],
)
@pytest.mark.parametrize("size", SIZES)
def test_no_stop_string_ends_within_the_first_min_tokens(
    min_tokens: int, content: str, num_tokens: int | None, size: int
) -> None:
    vocabulary = vocabulary_of(b".", b"a")
    spec = FormatSpec(stop=(".",), min_tokens=min_tokens)
    output = run(spec, cut([0, 1, 0, 1, 0, 0], size), vocabulary=vocabulary)
    assert output.ending is not None
    assert output.content == content
    assert output.ending.completion_tokens == (num_tokens or 6)
    assert (output.ending.matched_stop is None) == (num_tokens is None)


def test_a_stop_string_may_start_within_the_first_min_tokens() -> None:
    output = run(FormatSpec(stop=("ab",), min_tokens=1), cut([0, 1], 1), vocabulary=vocabulary_of(b"a", b"b"))
    assert output.content == ""
    assert output.num_tokens == 2


@pytest.mark.parametrize("size", SIZES)
def test_a_character_that_completes_a_stop_string_with_its_last_byte(size: int) -> None:
    vocabulary = vocabulary_of(b"a", b"\xf0\x9f", b"\x94\xa5", b"b")
    output = run(FormatSpec(stop=("🔥",)), cut(range(4), size), vocabulary=vocabulary)
    assert output.content == "a"
    assert output.num_tokens == 3


def test_incomplete_characters_at_the_end_can_complete_a_stop_string() -> None:
    output = run(FormatSpec(stop=("\ufffd",)), [[0], [1]], vocabulary=vocabulary_of(b"a", b"\xf0\x9f"), reason="length")
    assert output.ending is not None
    assert output.content == "a"
    assert output.ending.matched_stop == "\ufffd"


@pytest.mark.parametrize("stop", [[""], ["a", ""], ["a" * (MAX_STOP_LENGTH + 1)], ["a"] * (MAX_STOP_STRINGS + 1)])
def test_invalid_stop_strings_are_refused(stop: list[str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_stop_strings(stop)
    assert refused.value.param == "stop"


def test_the_limits_themselves_are_allowed() -> None:
    check_stop_strings(["a" * MAX_STOP_LENGTH] * MAX_STOP_STRINGS)
    check_stop_strings([])
