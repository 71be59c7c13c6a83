from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detokenizer_svc.deltas import Content, Marker
from detokenizer_svc.incremental import TokenDecoder, Utf8Decoder
from detokenizer_svc.positions import TokenPositions
from detokenizer_svc.vocabulary import UnknownToken
from tests.detokenizer_svc.given import BYTES, cut, cut_by, vocabulary_of

TRUE_PREFIXES = {
    chr(point).encode()[:length]
    for point in range(0x80, 0x110000, 64)
    if not 0xD800 <= point < 0xE000
    for length in range(1, len(chr(point).encode()))
}
"""Proper prefixes of all characters; steps of 64, because 64 characters share each prefix."""

AWKWARD = ("f0", "9f", "94", "a5", "e2", "82", "ac", "c3", "ed", "a0", "c0", "f4", "8f", "90", "e0", "80", "61")
garbage = st.binary(max_size=40) | st.lists(st.sampled_from(AWKWARD), max_size=40).map("".join).map(bytes.fromhex)


@given(garbage, st.lists(st.integers(0, 4), max_size=20))
@example(b"\xed\xa0\x80", [1, 1])
@example(b"\xed\x9f\xbf", [1, 1])
@example(b"\xf4\x90\x80\x80", [1, 1, 1])
@example(b"\xf4\x8f\xbf\xbf", [1, 1, 1])
def test_bytes_in_any_pieces_decode_as_at_once(data: bytes, sizes: list[int]) -> None:
    decoder = Utf8Decoder()
    text = ""
    for piece in cut_by(data, sizes):
        text += decoder.decode(piece)
        assert not decoder.pending or decoder.pending in TRUE_PREFIXES
    assert text + decoder.finish() == data.decode("utf-8", "replace")


@given(st.text())
def test_a_character_comes_with_its_last_byte(text: str) -> None:
    decoder = Utf8Decoder()
    for character in text.replace("\ufffd", ""):
        *begin, last = character.encode("utf-8", "replace")
        assert [decoder.decode(bytes([value])) for value in begin] == [""] * len(begin)
        assert decoder.decode(bytes([last])) == character.encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    ("before", "pieces", "text"),
    [
        ("f09f", ["8cb6", "21"], "🌶!"),
        ("f09f", ["8c", "b6", "21"], "🌶!"),
        ("f09f", ["21"], "!"),
        ("f09f", ["f09f8cb6"], "🌶"),
        ("f09f", ["8c"], "\ufffd"),
        ("f09f", ["8c", "21"], "\ufffd!"),
        ("f09f", [], ""),
        ("f09f", ["", "8cb6"], "🌶"),
        ("e0", ["80", "21"], "\ufffd!"),
        ("efbf", ["bd"], "\ufffd"),
        ("48656c6c6f", ["21"], "!"),
        ("f09f8cb6", ["21"], "!"),
        ("", ["9f"], "\ufffd"),
    ],
)
def test_a_character_that_starts_in_the_prompt(before: str, pieces: list[str], text: str) -> None:
    decoder = Utf8Decoder(bytes.fromhex(before))
    given_text = "".join(decoder.decode(bytes.fromhex(piece)) for piece in pieces)
    assert given_text + decoder.finish() == text


@given(garbage, garbage, st.lists(st.integers(0, 3), max_size=10))
def test_with_any_prompt_cuts_make_no_difference(before: bytes, data: bytes, sizes: list[int]) -> None:
    whole = Utf8Decoder(before)
    pieces = Utf8Decoder(before)
    text = "".join(pieces.decode(piece) for piece in cut_by(data, sizes)) + pieces.finish()
    assert text == whole.decode(data) + whole.finish()


HEX_ROWS = [
    (["4869", "20", "f0", "9f", "94", "a5", "21"], ["Hi", " ", "🔥", "!"], ""),
    (["41", "f09f"], ["A"], "\ufffd"),
    (["e4ba", "ace9", "83bd"], ["京", "都"], ""),
    (["f0", "41"], ["\ufffdA"], ""),
    (["c3", "c3a9"], ["\ufffdé"], ""),
    (["80"], ["\ufffd"], ""),
    (["eda080"], ["\ufffd\ufffd\ufffd"], ""),
    ([""], [], ""),
]


@pytest.mark.parametrize(("tokens", "pieces", "rest"), HEX_ROWS)
def test_tokens_that_end_inside_characters(tokens: list[str], pieces: list[str], rest: str) -> None:
    vocabulary = vocabulary_of(*map(bytes.fromhex, tokens))
    decoder = TokenDecoder(vocabulary)
    given_items = [item for token_id in range(len(tokens)) for item in decoder.feed([token_id])]
    assert given_items == [Content(piece) for piece in pieces]
    assert decoder.finish() == ([Content(rest)] if rest else [])


SPECIAL = vocabulary_of(b"\xf0\x9f", b"\x94\xa5", b"a", special=("<eot>", "<call>"))


def test_special_tokens_have_no_text() -> None:
    assert TokenDecoder(SPECIAL).feed([2, 3, 2, 4]) == [Content("aa")]


def test_special_tokens_do_not_split_a_character() -> None:
    assert TokenDecoder(SPECIAL).feed([0, 3, 1]) == [Content("🔥")]


def test_special_tokens_are_spelled_out_on_demand() -> None:
    assert TokenDecoder(SPECIAL, skip_special_tokens=False).feed([2, 3, 2]) == [Content("a<eot>a")]


@pytest.mark.parametrize("skip", [True, False])
def test_special_tokens_of_a_parser_are_markers(skip: bool) -> None:
    decoder = TokenDecoder(SPECIAL, skip_special_tokens=skip, markers=("<call>", "<unheard of>"))
    items = [item for piece in cut([2, 4, 0, 4, 2], 2) for item in decoder.feed(piece)]
    assert items == [Content("a"), Marker("<call>"), Content("\ufffd"), Marker("<call>"), Content("a")]


def test_a_special_token_at_the_end_of_the_prompt_ends_a_character_begun_before_it() -> None:
    assert TokenDecoder(SPECIAL, prompt_tail_ids=[0]).feed([1]) == [Content("🔥")]
    assert TokenDecoder(SPECIAL, prompt_tail_ids=[0, 3]).feed([1]) == [Content("\ufffd\ufffd")]


@pytest.mark.parametrize("positions", [None, TokenPositions()])
def test_an_id_outside_the_vocabulary(positions: TokenPositions | None) -> None:
    with pytest.raises(UnknownToken):
        TokenDecoder(BYTES, positions=positions).feed([65, len(BYTES)])
    with pytest.raises(UnknownToken):
        TokenDecoder(BYTES, prompt_tail_ids=[len(BYTES)])


def test_positions_record_each_token() -> None:
    positions = TokenPositions()
    decoder = TokenDecoder(SPECIAL, markers=("<call>",), positions=positions)
    decoder.feed([2, 0, 1, 3, 4, 0])
    assert [positions.characters_after(number) for number in range(8)] == [0, 1, 1, 2, 2, 8, 8, None]
