"""Tokenizer, detokenizer, engine grammar and offline use read the same vocabulary from one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from detokenizer_svc.server import load_vocabulary
from engine_svc.grammar.token_bytes import read_token_bytes
from engine_svc.offline.text import load_text
from engine_svc.runners.simulated.vocabulary import load_vocabulary as load_size
from modelfiles.errors import ModelFileError
from modelfiles.gguf_tokenizer import load_gguf_tokenizer
from modelfiles.token_table import read_token_table
from modelfiles.tokenizer import load_tokenizer as load
from tests.engine_svc.offline.decoding import decode
from tests.modelfiles.given import POINTER, control, user_defined
from tests.modelfiles.test_gguf_tokenizer import UNK_BOS_EOS, byte_level, deepseek, sentencepiece
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.prompt_tokenizer import PromptTokenizer

TEXTS = ("hi x", " hi\n\nx", "1234 é", "<s>hi</s>", "<｜User｜>hi<｜Assistant｜>", "<think>x</think>  ")
KINDS = ("byte level", "sentencepiece", "deepseek", "smollm2")


@pytest.fixture
def gguf(request: pytest.FixtureRequest, tmp_path: Path, smollm2: Path) -> Path:
    path = tmp_path / "x.gguf"
    match request.param:
        case "byte level":
            byte_level(path, *UNK_BOS_EOS, *user_defined("<think>", "</think>", "  "), add_eos_token_id=258)
        case "sentencepiece":
            sentencepiece(path, *control("<s2>"), *user_defined("<think>", "  "))
        case "deepseek":
            deepseek(path)
        case _:
            return smollm2
    return path


@pytest.mark.parametrize("gguf", KINDS, indirect=True)
def test_all_readers_of_a_gguf_file_agree(gguf: Path) -> None:
    tokenizer = load_gguf_tokenizer(gguf).tokenizer
    vocabulary, masked, size = load_vocabulary(str(gguf)), read_token_bytes(gguf), load_size(str(gguf))
    added = tokenizer.get_added_tokens_decoder()
    assert tokenizer.get_vocab_size() == len(vocabulary) == len(masked.spelled) == size.size
    assert set(vocabulary.special) == {n for n, token in added.items() if token.special} <= masked.special
    assert vocabulary.bytes_by_id == masked.spelled
    assert all(vocabulary.bytes_by_id[n].decode() == token.content for n, token in added.items())
    assert load(str(gguf)).eos_token_ids == size.eos_token_ids
    hashes = {vocabulary.hash, masked.vocabulary_hash, PromptTokenizer(load(str(gguf)), compiled).vocabulary_hash}
    assert hashes == {read_token_table(gguf).vocabulary_hash()}


@pytest.mark.parametrize("gguf", KINDS, indirect=True)
def test_offline_use_and_services_tokenize_alike(gguf: Path) -> None:
    offline, service = load_text(str(gguf)), PromptTokenizer(load(str(gguf)), compiled)
    assert offline.tokenizer.special_tokens_map == load(str(gguf)).special_tokens
    for text in TEXTS:
        for special in (True, False):
            ids = offline.tokenizer(text, add_special_tokens=special)["input_ids"]
            ours = service.tokenize(text, "x", add_special_tokens=special, parse_special_tokens=True)
            assert ids == ours
            assert decode(offline, ids) == service.detokenize(ours, skip_special_tokens=True)


def test_git_lfs_pointers(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "x.gguf"):
        (tmp_path / name).write_bytes(POINTER)
    for path in (tmp_path, tmp_path / "x.gguf"):
        with pytest.raises(ModelFileError, match=r"(tokenizer\.json|x\.gguf) is a Git LFS pointer"):
            read_token_table(path)
