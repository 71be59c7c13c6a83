from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from engine_svc.runners.simulated.vocabulary import load_vocabulary
from modelfiles.vocabulary_facts import VocabularyFacts
from protos import simulated
from svclib.config import SettingsError
from tests.modelfiles.given import POINTER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of four tokens and an added one, number 4."""
    tokenizer = Tokenizer(BPE(vocab={"a": 0, "b": 1, "c": 2, "d": 3}, merges=[]))
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("source", ["", "simulated"])
def test_the_simulated_models_own(source: str) -> None:
    assert load_vocabulary(source) == VocabularyFacts(simulated.VOCAB_SIZE, (simulated.EOS_TOKEN_ID,))


def test_a_folder_without_configuration(folder: Path) -> None:
    assert load_vocabulary(str(folder)) == VocabularyFacts(5, ())


@pytest.mark.parametrize(
    ("eos", "expected"),
    [("<end>", (4,)), ({"content": "<end>"}, (4,)), ("a", (0,)), (None, ()), ({}, ())],
)
def test_a_folder_that_names_its_end_token(folder: Path, eos: object, expected: tuple[int, ...]) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
    assert load_vocabulary(str(folder)) == VocabularyFacts(5, expected)


def test_an_end_token_without_an_id_is_appended(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<unknown>"}))
    assert load_vocabulary(str(folder)) == VocabularyFacts(6, (5,))


@pytest.mark.parametrize(("eos", "expected"), [(2, (2,)), (None, ())])
def test_a_gguf_file(tmp_path: Path, eos: int | None, expected: tuple[int, ...]) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "b", "c"])
    if eos is not None:
        writer.add_eos_token_id(eos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert load_vocabulary(str(path)) == VocabularyFacts(3, expected)


def test_no_tokenizer_is_a_bad_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no tokenizer\.json"):
        load_vocabulary(str(tmp_path))
    (tmp_path / "x.gguf").write_bytes(b"GGUF, or not")
    with pytest.raises(SettingsError, match="not a GGUF file"):
        load_vocabulary(str(tmp_path / "x.gguf"))


def test_a_repository_out_of_reach_is_a_bad_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SettingsError, match="no/such"):
        load_vocabulary("no/such")
    with pytest.raises(SettingsError, match="not a name"):
        load_vocabulary("not a name")


def test_added_tokens_and_ends_of_a_turn_that_configurations_name(folder: Path) -> None:
    added = {"added_tokens_decoder": {"7": {"content": "<x>"}}, "eos_token": "<x>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(added))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": [4]}))
    assert load_vocabulary(str(folder)) == VocabularyFacts(8, (0, 4, 7))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "x.gguf"])
def test_git_lfs_pointers(folder: Path, name: str) -> None:
    (folder / name).write_bytes(POINTER)
    with pytest.raises(SettingsError, match="is a Git LFS pointer"):
        load_vocabulary(str(folder / name if name == "x.gguf" else folder))
