from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from modelfiles.token_spelling import byte_alphabet
from tests.tokenizer_svc import tiny
from tokenizer_svc.byte_tokens import ByteTokens, NoSuchBytes
from tokenizer_svc.encoder import Encoder

CONTROLS = (*tiny.CONTROLS, *tiny.TAGS)
RAW = st.lists(
    st.one_of(st.binary(max_size=4), st.sampled_from(["fox ", "Zürich", "你", "<s>", "  ", "u\u0308"]).map(str.encode)),
    max_size=6,
).map(b"".join)


def byte_tokens(tokenizer: Tokenizer) -> ByteTokens:
    return ByteTokens(tokenizer, Encoder(tokenizer, CONTROLS))


def bytes_of(tokenizer: Tokenizer, token_id: int) -> bytes:
    """The bytes of a token, from the tokenizer's decoder, after a token that is a character."""
    token = tokenizer.id_to_token(token_id) or ""
    if token in CONTROLS or token in ("\n\n", "\n\n\n", "<b>", "</b>"):
        return token.encode()
    if token.startswith("<0x"):
        return bytes.fromhex(token[3:5])
    if "ByteLevel" in str(tokenizer.decoder):
        return bytes(byte_alphabet()[letter] for letter in token)
    return token.replace("▁", " ").encode()


@pytest.mark.parametrize("name", ["byte_level", "sentencepiece", "legacy_sentencepiece", "gemma"])
@given(raw=RAW, parse=st.booleans())
def test_the_bytes_of_the_tokens_are_the_bytes(name: str, raw: bytes, parse: bool) -> None:
    tokenizer = tiny.ALL[name]()
    ids = byte_tokens(tokenizer).encode(raw, parse_special_tokens=parse)
    assert b"".join(bytes_of(tokenizer, token_id) for token_id in ids) == raw


def test_whole_characters_are_encoded_as_text() -> None:
    tokenizer = tiny.ALL["byte_level"]()
    (word, first, second) = byte_tokens(tokenizer).encode(b"fox\xf0\x9f", parse_special_tokens=False)[-3:]
    assert [tokenizer.id_to_token(i) for i in (first, second)] == ["ð", "Ł"]
    assert word not in (first, second)


def test_special_tokens_on_request() -> None:
    tokenizer = tiny.ALL["byte_level"]()
    special = tokenizer.token_to_id("<s>")
    assert byte_tokens(tokenizer).encode(b"<s>", parse_special_tokens=True) == [special]
    assert special not in byte_tokens(tokenizer).encode(b"<s>", parse_special_tokens=False)


def test_a_vocabulary_without_bytes() -> None:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "fox": 1}, unk_token="<unk>"))
    tokens = ByteTokens(tokenizer, Encoder(tokenizer, ()))
    assert tokens.encode(b"fox", parse_special_tokens=False) == [1]
    for raw in (b"\xf0", b"dog"):
        with pytest.raises(NoSuchBytes):
            tokens.encode(raw, parse_special_tokens=False)


def test_nothing() -> None:
    assert byte_tokens(tiny.ALL["byte_level"]()).encode(b"", parse_special_tokens=True) == []


def test_the_alphabet_is_gpt2s() -> None:
    alphabet = byte_alphabet()
    assert len(alphabet) == 256
    assert sorted(alphabet.values()) == list(range(256))
    assert (alphabet["A"], alphabet["Ġ"], alphabet["Ċ"], alphabet["Ã"], alphabet["ł"]) == (65, 32, 10, 0xC3, 0xA0)
