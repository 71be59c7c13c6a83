from __future__ import annotations

from typing import Any

import pytest

from modelfiles.decoder_steps import ReplaceText, StripText
from modelfiles.errors import ModelFileError
from modelfiles.token_spelling import (
    BYTE_LEVEL,
    METASPACE,
    WORD_PIECE,
    Spelling,
    spelling_of,
)
from modelfiles.tokenizer_json import added_tokens, model_tokens


@pytest.mark.parametrize(
    ("spelling", "written", "meant"),
    [
        (BYTE_LEVEL, "\u0120a", b" a"),
        (BYTE_LEVEL, "\u00c3\u00a9", "\u00e9".encode()),
        (METASPACE, "\u2581a", b" a"),
        (METASPACE, "<0x0A>", b"\n"),
        (WORD_PIECE, "##ing", b"ing"),
        (WORD_PIECE, "sing", b" sing"),
    ],
)
def test_bytes_of_a_token(spelling: Spelling, written: str, meant: bytes) -> None:
    assert spelling.model_token(written) == meant


MARK = "\u2581"
TO_SPACE = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "decoders": list(steps)}


@pytest.mark.parametrize(
    ("decoder", "written", "meant"),
    [
        ({"type": "ByteLevel"}, "\u0120a", b" a"),
        ({"type": "Metaspace"}, MARK + "a", b" a"),
        ({"type": "Metaspace", "replacement": "_"}, "_a" + MARK, f" a{MARK}".encode()),
        (sequence(TO_SPACE), MARK + "a" + MARK, b" a "),
        (sequence(sequence(TO_SPACE), {"type": "ByteFallback"}), "<0xF0>", b"\xf0"),
        (sequence({"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "$0"}), "xabay", b"x$0y"),
        (sequence({"type": "Strip", "content": "x", "start": 1, "stop": 2}), "xxaxx", b"xa"),
        (sequence({"type": "ByteFallback"}, {"type": "Fuse"}, TO_SPACE), MARK, MARK.encode()),
    ],
)
def test_the_spelling_is_found_from_the_decoder(decoder: dict[str, Any], written: str, meant: bytes) -> None:
    assert spelling_of({"decoder": decoder}).model_token(written) == meant


def test_word_pieces() -> None:
    assert spelling_of({"decoder": {"type": "WordPiece"}}) is WORD_PIECE


@pytest.mark.parametrize(("scheme", "first"), [("always", b"a b"), ("first", b"a b"), ("never", b" a b")])
def test_the_first_token_of_a_text(scheme: str, first: bytes) -> None:
    spelling = spelling_of({"decoder": {"type": "Metaspace", "prepend_scheme": scheme}})
    assert spelling.first_token is not None
    assert spelling.first_token(f"{MARK}a b") == first
    assert spelling.model_token(f"{MARK}a b") == b" a b"


def test_steps_for_the_whole_text() -> None:
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    steps = (ReplaceText("\n ", "\n"), StripText(" ", 1, 0))
    replace = {"type": "Replace", "pattern": {"String": "\n "}, "content": "\n"}
    assert spelling_of({"decoder": sequence(TO_SPACE, {"type": "Fuse"}, replace, strip)}).text_steps == steps
    assert spelling_of({"decoder": sequence({"type": "ByteLevel"}, replace, strip)}).text_steps == steps


@pytest.mark.parametrize(
    ("decoder", "named"),
    [
        ({"type": "CTC"}, "'CTC'"),
        ({"type": "BPEDecoder", "suffix": "</w>"}, "'BPEDecoder'"),
        (None, "it has no decoder"),
        (sequence(TO_SPACE, {"type": "New"}), "'New'"),
        (sequence({"type": "ByteFallback"}, {"type": "ByteLevel"}), "'ByteLevel'"),
        (sequence({"type": "WordPiece"}, TO_SPACE), "'WordPiece'"),
        (sequence({"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}), "'Replace' of"),
        (sequence({"type": "ByteLevel"}, {"type": "Metaspace"}), "'Metaspace'"),
        (sequence({"type": "Replace", "pattern": {"String": ""}, "content": "x"}), "'Replace' of"),
    ],
)
def test_unsupported_steps_are_named(decoder: dict[str, Any] | None, named: str) -> None:
    with pytest.raises(ModelFileError, match=f"unsupported (decoder step|tokenizer:) {named}"):
        spelling_of({"decoder": decoder})


def test_a_unigram_vocabulary_counts_its_tokens() -> None:
    assert model_tokens({"vocab": [["a", -1.0], ["b", -2.0]]}) == [("a", 0), ("b", 1)]
    assert model_tokens({"vocab": {"a": 7}}) == [("a", 7)]


def test_the_configuration_overrides_added_tokens() -> None:
    description = {"added_tokens": [{"id": 3, "content": "x"}]}
    config = {"added_tokens_decoder": {"3": {"content": "y"}}}

    assert dict(added_tokens(description, config))[3]["content"] == "y"
