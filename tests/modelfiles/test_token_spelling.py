from __future__ import annotations

from typing import Any

import pytest

from modelfiles.token_spelling import (
    BYTE_LEVEL,
    METASPACE,
    WORD_PIECE,
    Spelling,
    added_tokens,
    model_tokens,
    spelling_of,
)


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
def test_a_token_stands_for_bytes(spelling: Spelling, written: str, meant: bytes) -> None:
    assert spelling.model_token(written) == meant


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        ({"type": "ByteLevel"}, BYTE_LEVEL),
        ({"type": "Metaspace"}, METASPACE),
        ({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}}]}, METASPACE),
        ({"type": "WordPiece"}, WORD_PIECE),
        ({"type": "CTC"}, None),
        (None, None),
    ],
)
def test_the_decoder_tells_how_tokens_are_written(decoder: dict[str, Any] | None, expected: Spelling | None) -> None:
    assert spelling_of({"decoder": decoder}) is expected


def test_a_unigram_vocabulary_counts_its_tokens() -> None:
    assert model_tokens({"vocab": [["a", -1.0], ["b", -2.0]]}) == [("a", 0), ("b", 1)]
    assert model_tokens({"vocab": {"a": 7}}) == [("a", 7)]


def test_the_configuration_has_the_last_word_on_added_tokens() -> None:
    description = {"added_tokens": [{"id": 3, "content": "x"}]}
    config = {"added_tokens_decoder": {"3": {"content": "y"}}}

    assert dict(added_tokens(description, config))[3]["content"] == "y"
