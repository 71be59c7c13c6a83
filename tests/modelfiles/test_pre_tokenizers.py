from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from modelfiles.errors import ModelFileError
from modelfiles.gguf_tokenizer import load_gguf_tokenizer
from modelfiles.pre_tokenizers import PRE_TOKENIZERS, pre_tokenizer_of
from tests.fetch_tokenizers import FOLDER
from tests.modelfiles.given import LETTERS, as_gguf, as_scored_gguf, normal, write_gguf

PIECES = st.sampled_from(
    [
        *"abzTLé\u0301ñ你한いカ09１²½𝟘😀'!?_/-#<>|.,€\u00a0\u200b\u3000 \n\t\r",
        "'s",
        "'LL",
        "  ",
        "\r\n",
        "123",
        "｜",
        "<think>",
    ]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=20)


def words(pre: str, text: str, folder: Path) -> list[str]:
    """The pre-tokens of a text."""
    path = write_gguf(folder / "x.gguf", "gpt2", normal(*LETTERS), add_tokenizer_pre=pre)
    cut = load_gguf_tokenizer(path).tokenizer.pre_tokenizer.pre_tokenize_str(text)
    return [text[start:end] for _, (start, end) in cut]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("smollm", ["I", "'m", " a", " ", "1", "2", "3", "4", "+", "5", "!?", "\n", "\n", "x"]),
        ("starcoder", ["I", "'m", " a", " ", "1", "2", "3", "4", "+", "5", "!?", "\n", "\n", "x"]),
        ("refact", ["I", "'m", " a", " ", "1", "2", "3", "4", "+", "5", "!?", "\n", "\n", "x"]),
        ("command-r", ["I", "'m", " a", " ", "1", "2", "3", "4", "+", "5", "!?", "\n", "\n", "x"]),
        ("gpt-2", ["I", "'m", " a", " 1234", "+", "5", "!?", "\n", "\n", "x"]),
        ("default", ["I", "'", "m", " a", " ", "123", "4", "+", "5", "!?", "\n", "\n", "x"]),
        ("falcon", ["I", "'", "m", " a", " ", "123", "4", "+", "5", "!?", "\n", "\n", "x"]),
        ("llama-bpe", ["I", "'m", " a", " ", "123", "4", "+", "5", "!?\n\n", "x"]),
        ("qwen2", ["I", "'m", " a", " ", "1", "2", "3", "4", "+", "5", "!?\n\n", "x"]),
        ("deepseek-llm", ["I", "'", "m", " a", " ", "1234", "+", "5", "!?", "\n", "\n", "x"]),
        ("deepseek-coder", ["I", "'", "m", " a", " ", "1", "2", "3", "4", "+", "5", "!?", "\n", "\n", "x"]),
        ("deepseek-v3", ["I", "'m", " a", " ", "123", "4", "+", "5", "!?\n\n", "x"]),
        ("gpt-4o", ["I'm", " a", " ", "123", "4", "+", "5", "!?\n\n", "x"]),
        ("tekken", ["I", "'m", " a", " ", "1", "2", "3", "4", "+", "5", "!?\n\n", "x"]),
    ],
)  # fmt: skip
def test_pre_tokenization_by_family(pre: str, expected: list[str], tmp_path: Path) -> None:
    assert words(pre, "I'm a 1234+5!?\n\nx", tmp_path) == expected


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_keeps_all_text(pre: str, tmp_path: Path) -> None:
    for text in ("Hi, you're 12345 \t\n\n  x²½ ", "你好 한글 いろは…", "IMGIMGAZ <sentinel:1>", " " * 20):
        assert "".join(words(pre, text, tmp_path)) == text


def test_an_unsupported_pre_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"unsupported pre-tokenizer 'kimi-k2' \(tokenizer\.ggml\.pre\)"):
        pre_tokenizer_of("kimi-k2")
    path = write_gguf(tmp_path / "x.gguf", "gpt2", normal(*LETTERS), add_tokenizer_pre="hybrid-dna")
    with pytest.raises(ModelFileError, match="'hybrid-dna'"):
        load_gguf_tokenizer(path)


def original(name: str) -> Path:
    if not (FOLDER / name / "tokenizer.json").is_file():
        pytest.skip(f"there is no tokenizer {name}: run tests/fetch_tokenizers.py")
    return FOLDER / name


@pytest.mark.parametrize(
    ("name", "pre"),
    [
        ("qwen3", "qwen2"),
        ("llama3_1", "llama-bpe"),
        ("deepseek_v3", "deepseek-v3"),
        ("gptoss", "gpt-4o"),
        ("gemma3", ""),
    ],
)
def test_ids_are_those_of_the_original(name: str, pre: str, tmp_path: Path) -> None:
    folder, path = original(name), tmp_path / "x.gguf"
    if pre:
        as_gguf(path, folder, pre)
    else:
        as_scored_gguf(path, folder, "gemma3", add_add_space_prefix=False, add_bos_token_id=2, add_eos_token_id=1)
    ours = load_gguf_tokenizer(path).tokenizer
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))

    @given(TEXTS)
    def check(text: str) -> None:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special_tokens=False).ids == ids
        assert ours.decode(ids) == theirs.decode(ids)

    check()
    for line in Path(__file__).with_name("smollm2_ids.jsonl").read_text().splitlines():
        text = json.loads(line)["text"]
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text, add_special_tokens=False).ids
