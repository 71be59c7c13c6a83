from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Final

import pytest
from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from modelfiles.gguf_metadata import GgufError, read_metadata
from modelfiles.gguf_tokenizer import load_gguf_tokenizer
from tests.tokenizer_svc import templates, tiny

TEXTS: Final = ("The quick fox", " two  spaces ", "<s>user<|im_end|> x", "Zürich\n\n12 你😀", "", "<think>a</think>")


def write_gguf(path: Path, tokenizer: Tokenizer, kind: str, **extra: Any) -> Path:
    """A GGUF file with the vocabulary of a tokenizer and no tensors."""
    writer = GGUFWriter(path, "llama")
    vocab = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1])
    tokens = [token for token, _ in vocab]
    kinds = {**dict.fromkeys(tiny.CONTROLS, TokenType.CONTROL), **dict.fromkeys(tiny.TAGS, TokenType.USER_DEFINED)}
    fallback = [TokenType.BYTE if token.startswith("<0x") else TokenType.NORMAL for token in tokens]
    writer.add_context_length(128)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, normal) for token, normal in zip(tokens, fallback, strict=True)])
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index("</s>"))
    writer.add_eot_token_id(tokens.index("<|im_end|>"))
    writer.add_chat_template(templates.CHATML)
    for name, value in extra.items():
        getattr(writer, name)(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def merges_of(tokenizer: Tokenizer) -> list[str]:
    return [" ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


def files(folder: Path) -> dict[str, Path]:
    byte_level, sentencepiece = tiny.byte_level(), tiny.sentencepiece()
    merges = {"add_token_merges": merges_of(byte_level)}
    scores = {"add_token_scores": [-float(i) for i in range(sentencepiece.get_vocab_size())]}
    return {
        "byte level": write_gguf(folder / "gpt2.gguf", byte_level, "gpt2", add_add_bos_token=True, **merges),
        "other split": write_gguf(folder / "l3.gguf", byte_level, "gpt2", add_tokenizer_pre="llama-bpe", **merges),
        "sentencepiece": write_gguf(folder / "llama.gguf", sentencepiece, "llama", **scores),
    }


@pytest.mark.parametrize("name", ["byte level", "other split", "sentencepiece"])
def test_the_same_tokenizer_as_that_of_transformers(name: str, tmp_path: Path) -> None:
    path = files(tmp_path)[name]
    ours, turn_ends = load_gguf_tokenizer(path)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.chat_template == theirs.chat_template == templates.CHATML
    for text, adds in itertools.product(TEXTS, (True, False)):
        assert ours(text, add_special_tokens=adds) == theirs(text, add_special_tokens=adds)
    assert ours.convert_ids_to_tokens(list(turn_ends)) == ["</s>", "<|im_end|>"]


def test_a_kind_that_nobody_knows(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", tiny.byte_level(), "rwkv")
    with pytest.raises(ValueError, match="rwkv"):
        load_gguf_tokenizer(path)


def test_a_file_that_ends_early(tmp_path: Path) -> None:
    path = files(tmp_path)["sentencepiece"]
    whole = path.read_bytes()
    for size in (24, 100, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(GgufError, match="damaged"):
            read_metadata(path, {"tokenizer.ggml.tokens"})
