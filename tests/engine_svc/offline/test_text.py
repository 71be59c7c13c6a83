from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from engine_svc.offline.text import Text, load_text
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc.offline.decoding import decode


@pytest.fixture
def words(tmp_path: Path) -> Text:
    """Two words, and a beginning-of-sequence token."""
    backend = Tokenizer(WordLevel({"<s>": 0, "a": 1, "b": 2}, unk_token="b"))
    backend.pre_tokenizer = WhitespaceSplit()
    backend.decoder = Fuse()
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.enable_truncation(max_length=3)
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="b").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    return load_text(str(tmp_path))


def test_a_prompt_gets_the_token_that_begins_a_text_once(words: Text) -> None:
    assert words.encode("a b") == [0, 1, 2]
    assert words.encode("<s> a b") == [0, 1, 2]
    assert words.encode("<s> <s> a") == [0, 0, 1]


def test_no_truncation(words: Text) -> None:
    assert len(words.encode("a " * 50)) == 51


def test_special_tokens_are_no_text(words: Text) -> None:
    assert decode(words, [0, 1, 0, 1]) == "aa"


def test_the_token_that_ends_a_text(words: Text) -> None:
    assert words.eos_token_ids == {2}


def test_a_gguf_file_and_a_folder_give_the_same(smollm2: Path, tiny_folder: str) -> None:
    from_file, from_folder = load_text(str(smollm2)), load_text(tiny_folder)
    for string in ("The sea.", "  two\n\nlines 😀", "<|im_start|>user\nx<|im_end|>"):
        assert from_file.encode(string) == from_folder.encode(string)
        assert decode(from_file, from_file.encode(string)) == decode(from_folder, from_folder.encode(string))
    messages = [{"role": "user", "content": "x"}]
    assert from_file.encode_chat(messages) == from_folder.encode_chat(messages)


def test_a_damaged_tokenizer_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelLoadError, match="cannot load a tokenizer"):
        load_text(str(tmp_path))
