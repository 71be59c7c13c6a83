from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest

from engine_svc.grammar.token_bytes import TokenBytes, VocabularyError, read_token_bytes, simulated_tokens
from protos import simulated

BYTE_LEVEL = {
    "model": {"type": "BPE", "vocab": {"a": 0, "Ġb": 1, "Ċ": 2, "Ã©": 3, "日": 4}},
    "decoder": {"type": "ByteLevel"},
}
METASPACE = {
    "model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["<0x0A>", -2.0]]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace"}, {"type": "Fuse"}]},
}


def folder(path: Path, description: Any, config: Any = None) -> Path:
    (path / "tokenizer.json").write_text(json.dumps(description))
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_the_simulated_models_tokens_are_bytes() -> None:
    tokens = simulated_tokens()
    assert tokens.spelled[:256] == tuple(bytes([value]) for value in range(256))
    assert simulated.EOS_TOKEN_ID in tokens.special


def test_a_byte_level_vocabulary(tmp_path: Path) -> None:
    added = [{"id": 5, "content": "<end>", "special": True}, {"id": 7, "content": "<call> ", "special": False}]
    found = read_token_bytes(folder(tmp_path, BYTE_LEVEL | {"added_tokens": added}))
    expected = (b"a", b" b", b"\n", "é".encode(), "日".encode(), b"<end>", b"", b"<call> ")
    assert found == TokenBytes(expected, frozenset({5}))


def test_a_sentencepiece_vocabulary(tmp_path: Path) -> None:
    found = read_token_bytes(
        folder(tmp_path, METASPACE | {"added_tokens": [{"id": 0, "content": "<unk>", "special": True}]})
    )
    assert found == TokenBytes((b"<unk>", b" a", b"\n"), frozenset({0}))


def test_the_configuration_has_the_last_word(tmp_path: Path) -> None:
    added = [{"id": 5, "content": "<x>", "special": False}]
    config = {"added_tokens_decoder": {"5": {"content": "<x>", "special": True}}}
    assert read_token_bytes(folder(tmp_path, BYTE_LEVEL | {"added_tokens": added}, config)).special == {5}


@pytest.mark.parametrize(
    "description",
    [
        {},
        [],
        {"decoder": {"type": "WordPiece"}, "model": {"vocab": {}}},
        BYTE_LEVEL | {"model": {}},
        BYTE_LEVEL | {"added_tokens": [{"id": "x"}]},
    ],
)
def test_what_is_no_vocabulary(tmp_path: Path, description: Any) -> None:
    with pytest.raises(VocabularyError):
        read_token_bytes(folder(tmp_path, description))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="tokenizer"):
        read_token_bytes(tmp_path)


def test_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "▁a", "<0xC3>", "<call>▁", "<s>"])
    writer.add_token_types([2, 1, 6, 4, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    expected = (b"<unk>", b" a", b"\xc3", b"<call> ", b"<s>")
    assert read_token_bytes(path) == TokenBytes(expected, frozenset({0, 4}))


def test_a_gguf_file_of_an_unknown_kind(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("bert")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(VocabularyError, match="bert"):
        read_token_bytes(path)
    with pytest.raises(VocabularyError, match="cannot read"):
        read_token_bytes(tmp_path / "absent.gguf")


def test_smollm2(smollm2: Path) -> None:
    tokens = read_token_bytes(smollm2)
    assert len(tokens.spelled) == 49152
    assert b"".join(tokens.spelled[n] for n in (504, 3575, 282)) == b"The capital of"
    assert {tokens.spelled[n] for n in tokens.special} >= {b"<|im_start|>", b"<|im_end|>"}
