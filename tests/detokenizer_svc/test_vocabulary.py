from __future__ import annotations

import dataclasses

import pytest

from detokenizer_svc.vocabulary import UnknownToken, Vocabulary

VOCABULARY = Vocabulary.of({0: b"a", 3: b"\xf0\x9f", 4: "é".encode(), 5: b"<eot>"}, special=[5])


def test_bytes_and_text() -> None:
    assert VOCABULARY.bytes_by_id == (b"a", b"", b"", b"\xf0\x9f", "é".encode(), b"<eot>")
    assert VOCABULARY.text_by_id == (b"a", b"", b"", b"\xf0\x9f", "é".encode(), b"")
    assert len(VOCABULARY) == 6
    assert len(Vocabulary.of({})) == 0


@pytest.mark.parametrize(("token_id", "text"), [(0, "a"), (1, ""), (3, "\ufffd"), (4, "é"), (5, "<eot>")])
def test_a_token_alone(token_id: int, text: str) -> None:
    assert VOCABULARY.text_of(token_id) == text


def test_special_tokens_by_spelling() -> None:
    assert VOCABULARY.special_ids(["<eot>", "a", "<other>"]) == {5: "<eot>"}
    assert VOCABULARY.special_ids([]) == {}


@pytest.mark.parametrize("token_id", [6, 2**32 - 1])
def test_an_id_outside(token_id: int) -> None:
    with pytest.raises(UnknownToken):
        VOCABULARY.text_of(token_id)


def test_it_is_immutable() -> None:
    with pytest.raises(TypeError):
        VOCABULARY.special[1] = "x"  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        VOCABULARY.special = {}  # type: ignore[misc]
