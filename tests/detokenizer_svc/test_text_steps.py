"""The joined stream equals the tokenizers library's decode of all tokens at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.text_steps import TextSteps
from modelfiles.decoder_steps import ReplaceText, StripText
from modelfiles.errors import ModelFileError
from tests.detokenizer_svc.given import cut_by, from_json, run

MARK = "▁"
PIECES = (
    "▁Hello",
    "\n",
    "▁world",
    "▁",
    "▁▁a",
    "b",
    "b▁",
    " ",
    "ab",
    "aa",
    "x",
    "<0x0A>",
    "<0xC3>",
    "<0xA9>",
    "é",
    "<s>",
)
BYTES = {PIECES.index("<0xC3>"), PIECES.index("<0xA9>")}
TO_SPACE = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
BYTE_FALLBACK: dict[str, Any] = {"type": "ByteFallback"}
FUSE: dict[str, Any] = {"type": "Fuse"}


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def strip(content: str, start: int, stop: int) -> dict[str, Any]:
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


def metaspace(scheme: str) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": True}


DECODERS: dict[str, list[dict[str, Any]]] = {
    "K10.1": [BYTE_FALLBACK, metaspace("always"), FUSE, replace("\n ", "\n")],
    "llama": [TO_SPACE, BYTE_FALLBACK, FUSE, strip(" ", 1, 0)],
    "gemma": [TO_SPACE, BYTE_FALLBACK, FUSE],
    "metaspace": [BYTE_FALLBACK, metaspace("first")],
    "metaspace that keeps all spaces": [BYTE_FALLBACK, metaspace("never")],
    "both ends": [TO_SPACE, BYTE_FALLBACK, FUSE, strip(" ", 2, 3)],
    "the end only": [TO_SPACE, BYTE_FALLBACK, FUSE, strip("a", 0, 1)],
    "each token's ends": [TO_SPACE, BYTE_FALLBACK, strip("a", 1, 1), FUSE],
    "several": [
        TO_SPACE,
        BYTE_FALLBACK,
        FUSE,
        replace("aa", "b"),
        replace("b ", ""),
        replace("ab", "\n\n"),
        strip("\n", 1, 1),
    ],
    "overlapping": [TO_SPACE, BYTE_FALLBACK, FUSE, replace("aab", "x"), replace(" \n \n", "-")],
    "patterns": [replace("[▁ ]+", " ", "Regex"), BYTE_FALLBACK, FUSE],
}


def description(steps: list[dict[str, Any]]) -> dict[str, Any]:
    added = {"id": len(PIECES) - 1, "content": "<s>", "special": True, "normalized": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return {
        "version": "1.0",
        "added_tokens": [added | flags],
        "model": {"type": "BPE", "vocab": {piece: n for n, piece in enumerate(PIECES)}, "merges": []},
        "decoder": {"type": "Sequence", "decoders": steps},
    }


def whole_characters(ids: Iterable[int]) -> list[int]:
    """Without byte tokens that are not characters: the library writes one U+FFFD for each byte of a run."""
    first, second = sorted(BYTES)
    out: list[int] = []
    for token_id in ids:
        out += [first, second] if token_id in BYTES else [token_id]
    return out


def decoded(tokenizer: Tokenizer, ids: list[int], skip: bool) -> str | None:
    """The library's decode of the tokens; None if it panics, as it does for texts shorter than what it strips."""
    try:
        return str(tokenizer.decode(ids, skip_special_tokens=skip))
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


@pytest.mark.parametrize("name", DECODERS)
def test_the_joined_stream_equals_the_tokenizers_decode(name: str) -> None:
    vocabulary = from_json(description(DECODERS[name]), {})
    theirs = Tokenizer.from_str(json.dumps(description(DECODERS[name])))

    @given(
        st.lists(st.integers(0, len(PIECES) - 1), max_size=12).map(whole_characters),
        st.lists(st.integers(0, 3), max_size=8),
        st.booleans(),
        st.booleans(),
    )
    def check(ids: list[int], sizes: list[int], skip: bool, counted: bool) -> None:
        spec = FormatSpec(skip_special_tokens=skip, stop=("never",) if counted else ())
        found = run(spec, cut_by(ids, sizes), vocabulary=vocabulary)
        assert found.num_tokens == len(ids)
        if (expected := decoded(theirs, ids, skip)) is not None:
            assert found.content == expected

    check()


def test_a_metaspace_decoder_with_strip() -> None:
    vocabulary = from_json(description(DECODERS["K10.1"]), {})
    assert run(FormatSpec(), [[0], [1], [2]], vocabulary=vocabulary).content == "Hello\nworld"


def test_a_continuation_of_the_prompt_keeps_its_leading_space() -> None:
    for name in ("K10.1", "llama", "metaspace"):
        vocabulary = from_json(description(DECODERS[name]), {})
        assert run(FormatSpec(prompt_tail_ids=(0,)), [[2], [2]], vocabulary=vocabulary).content == " world world"


def test_skipped_special_tokens_are_not_the_first_token_of_the_text() -> None:
    vocabulary = from_json(description(DECODERS["metaspace"]), {})
    begin = len(PIECES) - 1
    assert run(FormatSpec(), [[begin], [0]], vocabulary=vocabulary).content == "Hello"
    assert run(FormatSpec(skip_special_tokens=False), [[begin], [0]], vocabulary=vocabulary).content == "<s> Hello"


def test_only_text_that_can_still_change_is_held() -> None:
    steps = TextSteps((ReplaceText("\n ", "\n"), StripText("!", 0, 1)), at_start=True)
    fed: Sequence[tuple[str, str]] = [("a", "a"), ("b\n", "b"), (" c", "\nc"), ("!", ""), ("!", "!"), ("d\n", "!d")]
    assert [steps.feed(text) for text, _ in fed] == [out for _, out in fed]
    assert steps.finish() == "\n"


def test_a_step_that_cannot_run_incrementally_is_refused_by_name() -> None:
    for step in (replace("a+", "", "Regex"), metaspace("always")):
        with pytest.raises(ModelFileError, match=f"unsupported decoder step '{step['type']}'.* on the whole text"):
            from_json(description([FUSE, step]), {})
