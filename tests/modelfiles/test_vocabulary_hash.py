from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from modelfiles.token_table import TokenTable, read_token_table
from modelfiles.tokenizer import load_tokenizer
from modelfiles.vocabulary_hash import UNKNOWN, hash_of_tokenizer, sampled_ids
from tests.modelfiles.given import as_gguf, as_scored_gguf
from tests.modelfiles.test_pre_tokenizers import original


def hash_of(*tokens: bytes, unused: frozenset[int] = frozenset()) -> str:
    return TokenTable.of(dict(enumerate(tokens)), (), unused=unused).vocabulary_hash()


def test_the_hash_tells_vocabularies_apart() -> None:
    vocabularies = [[b"a", b"b"], [b"b", b"a"], [b"ab"], [b"ab", b""], [b"a", b"1 b"], []]
    hashes = [TokenTable.of(dict(enumerate(tokens)), ()).vocabulary_hash() for tokens in vocabularies]
    assert len(set(hashes)) == len(hashes)
    assert TokenTable.of({0: b"a", 1: b"b"}, [1]).vocabulary_hash() == hashes[0]


def test_trailing_unused_tokens_do_not_count() -> None:
    assert hash_of(b"a", b"[PAD1]", b"[PAD2]", unused=frozenset({1, 2})) == hash_of(b"a")
    assert hash_of(b"a", b"[PAD1]", b"b", unused=frozenset({1})) != hash_of(b"a", b"", b"b")
    assert hash_of(b"[PAD0]", unused=frozenset({0})) == hash_of()


def test_small_vocabularies_are_hashed_in_full() -> None:
    for size in (0, 1, 1000, 5000, 8191):
        assert sampled_ids(size) == list(range(size))


@pytest.mark.parametrize("size", [8192, 49_152, 262_145])
def test_large_vocabularies_are_sampled_from_end_to_end(size: int) -> None:
    ids = sampled_ids(size)
    assert ids == sorted(set(ids))
    assert {*range(1024), *range(size - 2048, size)} <= set(ids) <= set(range(size))
    assert len(ids) < 8192
    assert max(second - first for first, second in pairwise(ids)) <= size // 4096


def test_a_tokenizer_whose_decoder_is_not_supported_has_no_hash() -> None:
    assert hash_of_tokenizer(Tokenizer(models.BPE({"a": 0}, [])), 1) == UNKNOWN


@pytest.mark.parametrize(
    ("name", "pre"), [("qwen3", "qwen2"), ("llama3_1", "llama-bpe"), ("deepseek_v3", "deepseek-v3"), ("gemma3", "")]
)
def test_the_files_of_one_model_in_two_formats_have_one_hash(name: str, pre: str, tmp_path: Path) -> None:
    folder, path = original(name), tmp_path / "x.gguf"
    if pre:
        as_gguf(path, folder, pre)
    else:
        as_scored_gguf(path, folder, "gemma3")
    loaded = load_tokenizer(str(path))
    size = len(read_token_table(path).spelled)
    by_folder = read_token_table(folder).vocabulary_hash()
    assert read_token_table(path).vocabulary_hash() == by_folder
    assert hash_of_tokenizer(loaded.tokenizer, size, loaded.unused_ids) == by_folder
