"""Tokens named in configurations: their ids are those of the tokenizer that transformers loads from the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from modelfiles.token_table import read_token_table, table_of_tokenizer
from modelfiles.tokenizer import load_tokenizer
from modelfiles.vocabulary_facts import read_vocabulary_facts
from tests.fetch_tokenizers import FOLDER
from tests.tokenizer_svc import tiny
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.prompt_tokenizer import PromptTokenizer

CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}
CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "nothing": ({}, None),
    "by a role": ({"pad_token": "<pad>", "eos_token": "</s>"}, None),
    "as an object": ({"pad_token": {"__type": "AddedToken", "content": "<pad>", "lstrip": False}}, None),
    "roles in their order": ({"mask_token": "<mask>", "pad_token": "<pad>", "cls_token": "<cls>"}, None),
    "one for two roles": ({"bos_token": "<both>", "pad_token": "<both>"}, None),
    "a list": ({"additional_special_tokens": ["<a>", "<s>", "<b>"], "pad_token": "<pad>"}, None),
    "under the new name": ({"extra_special_tokens": ["<a>", "<b>"]}, None),
    "a role of the model's own": ({"image_token": "<image>", "pad_token": "<pad>"}, None),
    "roles of the model's own": ({"extra_special_tokens": {"image_token": "<image>"}, "pad_token": "<pad>"}, None),
    "in the other file": ({}, {"pad_token": "<pad>"}),
    "in both files": (
        {"pad_token": "<one>", "additional_special_tokens": ["<a>"]},
        {"pad_token": {"content": "<two>"}},
    ),
    "in a file that does not count": ({"added_tokens_decoder": {}}, {"pad_token": "<pad>"}),
    "a word of the model": ({"pad_token": "the", "sep_token": "\u0120"}, None),
    "an added token that is text": ({"additional_special_tokens": ["<think>"]}, None),
    "flags that are no tokens": ({"add_bos_token": False, "pad_token": None}, None),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.byte_level().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("name", CONFIGS)
def test_all_readers_of_the_files_agree(folder: Path, name: str) -> None:
    config, special_tokens_map = CONFIGS[name]
    (folder / "tokenizer_config.json").write_text(json.dumps(CLASS | config))
    if special_tokens_map is not None:
        (folder / "special_tokens_map.json").write_text(json.dumps(special_tokens_map))
    by_files, by_transformers = read_token_table(folder), table_of_tokenizer(load_tokenizer(str(folder)).tokenizer)
    assert by_files.special == by_transformers.special
    assert by_files == by_transformers
    assert by_files.vocabulary_hash() == by_transformers.vocabulary_hash()
    loaded = load_tokenizer(str(folder))
    assert PromptTokenizer(loaded, compiled).vocabulary_hash == by_files.vocabulary_hash()
    assert read_vocabulary_facts(str(folder)).size == len(by_files.spelled)


@pytest.mark.parametrize("name", ["deepseek_v3", "gemma3", "gptoss", "llama3_1", "qwen3"])
def test_real_tokenizers(name: str) -> None:
    folder = FOLDER / name
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"there is no tokenizer {name}: run tests/fetch_tokenizers.py")
    by_files, by_transformers = read_token_table(folder), table_of_tokenizer(load_tokenizer(str(folder)).tokenizer)
    assert by_files.special <= by_transformers.special, "some classes of transformers name more tokens"
    assert by_files.vocabulary_hash() == by_transformers.vocabulary_hash()
    assert read_vocabulary_facts(str(folder)).size == len(by_files.spelled)
