from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import TokenType
from hypothesis import given
from hypothesis import strategies as st

from modelfiles.errors import ModelFileError
from modelfiles.gguf_metadata import GgufError, read_metadata
from modelfiles.gguf_tokenizer import GgufTokenizer, load_gguf_tokenizer
from tests.modelfiles.given import (
    BYTES,
    LETTERS,
    POINTER,
    Tokens,
    control,
    normal,
    user_defined,
    write_gguf,
)

UNK_BOS_EOS: Tokens = [("<unk>", TokenType.UNKNOWN), *control("<s>", "</s>")]
BYTE_TOKENS: Tokens = [(token, TokenType.BYTE) for token in BYTES]
WORDS = ("▁▁", "▁", "h", "i", "▁h", "hi", "▁hi", "x", "▁x", "y")


def sentencepiece(path: Path, *more: tuple[str, TokenType], **extra: Any) -> GgufTokenizer:
    """A vocabulary with scores: later words merge first."""
    tokens = [*UNK_BOS_EOS, *BYTE_TOKENS, *normal(*WORDS), *more]
    scores = [0.0] * 259 + [float(n) for n in range(len(tokens) - 259)]
    return load_gguf_tokenizer(write_gguf(path, "llama", tokens, add_token_scores=scores, **extra))


def byte_level(path: Path, *more: tuple[str, TokenType], merges: tuple[str, ...] = (), **extra: Any) -> GgufTokenizer:
    extra = {"add_tokenizer_pre": "gpt-2"} | extra
    return load_gguf_tokenizer(
        write_gguf(path, "gpt2", [*normal(*LETTERS), *more], add_token_merges=list(merges), **extra)
    )


def pieces(loaded: GgufTokenizer, text: str, *, special: bool = False) -> list[str]:
    """The tokens of a text as spelled in the file."""
    ids = loaded.tokenizer.encode(text, add_special_tokens=special).ids
    return [loaded.vocabulary.tokens[token_id] for token_id in ids]


def test_the_default_models_numbers_and_lists(smollm2: Path) -> None:
    loaded = load_gguf_tokenizer(smollm2)
    found = loaded.tokenizer.encode("Steps:\n\n1. Boil\n\n2. Eat", add_special_tokens=False)
    assert _texts(loaded, found.ids) == [
        "Steps", ":", "\n\n", "1", ".", " Bo", "il", "\n\n", "2", ".", " Eat",
    ]  # fmt: skip
    assert loaded.special_tokens["eos_token"] == "<|im_end|>"
    assert list(loaded.chat_templates) == ["default"]
    assert loaded.vocabulary.turn_ends == (2,)


def _texts(loaded: GgufTokenizer, ids: list[int]) -> list[str]:
    return [loaded.tokenizer.decode([token_id], skip_special_tokens=False) for token_id in ids]


DEEPSEEK = ("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>")


def deepseek(path: Path, **extra: Any) -> Path:
    """A vocabulary whose control tokens are outside the byte alphabet."""
    end, user, assistant, begin = DEEPSEEK
    tokens = [*control(end), *user_defined(user), *control(assistant, begin), *normal(*LETTERS)]
    ids: dict[str, Any] = {"add_bos_token_id": 3, "add_eos_token_id": 0}
    return write_gguf(path, "gpt2", tokens, add_tokenizer_pre="deepseek-r1-qwen", **ids, **extra)


def test_control_tokens_outside_the_byte_alphabet_keep_their_ids(tmp_path: Path) -> None:
    loaded = load_gguf_tokenizer(deepseek(tmp_path / "x.gguf"))
    assert [loaded.tokenizer.token_to_id(token) for token in DEEPSEEK] == [0, 1, 2, 3]
    assert loaded.tokenizer.get_vocab_size() == 260
    text = f"{DEEPSEEK[3]}{DEEPSEEK[1]}hi{DEEPSEEK[2]}"
    ids = loaded.tokenizer.encode(text).ids
    assert (ids[:2], ids[-1], len(ids)) == ([3, 1], 2, 5)
    assert loaded.tokenizer.decode(ids, skip_special_tokens=False) == text
    assert loaded.special_tokens == {"bos_token": DEEPSEEK[3], "eos_token": DEEPSEEK[0]}


def test_added_tokens_of_phi_3_strip_on_their_right(tmp_path: Path) -> None:
    more = control("<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>")
    text = "<|user|>\nhi<|end|>\n<|assistant|>\n"
    for architecture, name in (("phi3", ""), ("llama", "Phi-3 mini")):
        loaded = sentencepiece(tmp_path / "x.gguf", *more, architecture=architecture, add_name=name)
        assert pieces(loaded, text) == ["<|user|>", "▁hi", "<|end|>", "<|assistant|>"]
        assert pieces(loaded, "<|endoftext|> x<s> x</s> x") == [
            "<|endoftext|>",
            "▁",
            "▁x",
            "<s>",
            "▁",
            "▁x",
            "</s>",
            "▁x",
        ]
    other = sentencepiece(tmp_path / "x.gguf", *more)
    assert pieces(other, "<|user|>\nhi")[1:3] == ["▁", "<0x0A>"]


def test_mask_tokens_of_embedding_models_strip_on_their_left(tmp_path: Path) -> None:
    loaded = byte_level(tmp_path / "x.gguf", *control("<mask>"), add_tokenizer_pre="jina-v2-code")
    assert pieces(loaded, "a <mask> b") == ["a", "<mask>", "Ġ", "b"]


def test_a_space_before_the_first_word_and_after_special_tokens(tmp_path: Path) -> None:
    with_space = sentencepiece(tmp_path / "x.gguf")
    assert pieces(with_space, "hi") == ["▁hi"]
    assert pieces(with_space, "hi</s>hi x") == ["▁hi", "</s>", "▁hi", "▁x"]
    assert pieces(with_space, " hi") == ["▁", "▁hi"]
    without = sentencepiece(tmp_path / "x.gguf", add_add_space_prefix=False)
    assert pieces(without, "hi</s>hi x") == ["hi", "</s>", "hi", "▁x"]
    assert (with_space.tokenizer.decode([265]), without.tokenizer.decode([265])) == ("hi", " hi")


def test_byte_fallback(tmp_path: Path) -> None:
    loaded = sentencepiece(tmp_path / "x.gguf", add_add_space_prefix=False)
    assert pieces(loaded, "é\n") == ["<0xC3>", "<0xA9>", "<0x0A>"]
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("é\n hi", add_special_tokens=False).ids) == "é\n hi"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, ["<s>", "▁x"]),
        ({"add_add_bos_token": False}, ["▁x"]),
        ({"add_add_eos_token": True}, ["<s>", "▁x", "</s>"]),
        ({"add_bos_token_id": 3}, ["<0x00>", "▁x"]),
    ],
)
def test_special_tokens_around_a_sentencepiece_text(flags: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    assert pieces(sentencepiece(tmp_path / "x.gguf", **flags), "x", special=True) == expected


@pytest.mark.parametrize(
    ("pre", "flags", "expected"),
    [
        ("gpt-2", {}, ["x"]),
        ("llama-bpe", {}, ["<b>", "x"]),
        ("llama-bpe", {"add_add_bos_token": False}, ["x"]),
        ("gpt-2", {"add_add_bos_token": True, "add_add_eos_token": True}, ["<b>", "x", "<e>"]),
    ],
)
def test_special_tokens_around_a_byte_level_text(
    pre: str, flags: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    ids: dict[str, Any] = {"add_bos_token_id": 256, "add_eos_token_id": 257}
    loaded = byte_level(tmp_path / "x.gguf", *control("<b>", "<e>"), add_tokenizer_pre=pre, **ids, **flags)
    assert pieces(loaded, "x", special=True) == expected


def test_a_missing_bos_token_id(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="add_bos_token is true, but there is no bos_token_id"):
        byte_level(tmp_path / "x.gguf", add_add_bos_token=True)


def test_llama_3_ignores_merges_for_words_that_are_tokens(tmp_path: Path) -> None:
    assert pieces(byte_level(tmp_path / "x.gguf", *normal("abc")), "abc") == ["a", "b", "c"]
    loaded = byte_level(tmp_path / "x.gguf", *normal("abc"), add_tokenizer_pre="llama-bpe")
    assert pieces(loaded, "abc") == ["abc"]


def test_a_file_without_a_pre_tokenizer_has_the_default_one(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "x.gguf", "gpt2", normal(*LETTERS, "12", "34", "123"), add_token_merges=["1 2", "3 4", "12 3"]
    )
    assert pieces(load_gguf_tokenizer(path), "1234") == ["123", "4"]


def test_user_defined_tokens_are_found_whole_and_are_text(tmp_path: Path) -> None:
    loaded = byte_level(tmp_path / "x.gguf", *user_defined("<think>", "  "), *control("<e>"))
    assert pieces(loaded, "a<think>  b<e>") == ["a", "<think>", "  ", "b", "<e>"]
    ids = loaded.tokenizer.encode("a<think>  b<e>").ids
    assert loaded.tokenizer.decode(ids) == "a<think>  b"


def test_a_turn_end_of_normal_type_is_a_control_token(tmp_path: Path) -> None:
    loaded = byte_level(tmp_path / "x.gguf", *normal("<end>"), add_eot_token_id=256, add_pad_token_id=0)
    assert pieces(loaded, "a<end>") == ["a", "<end>"]
    assert loaded.tokenizer.decode([256]) == ""
    assert loaded.special_tokens == {}


def test_several_chat_templates(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    loaded = byte_level(tmp_path / "x.gguf", add_chat_template=templates)
    assert loaded.chat_templates == {"default": "a", "tool_use": "b"}
    assert byte_level(tmp_path / "x.gguf", add_chat_template="c").chat_templates == {"default": "c"}
    assert byte_level(tmp_path / "x.gguf").chat_templates == {}


def test_all_turn_end_tokens(tmp_path: Path) -> None:
    ids: dict[str, Any] = {"add_eos_token_id": 0, "add_eot_token_id": 257, "add_eom_token_id": 256}
    loaded = byte_level(tmp_path / "x.gguf", *control("<a>", "<b>"), **ids)
    assert loaded.vocabulary.turn_ends == (0, 257, 256)


def test_a_unigram_vocabulary(tmp_path: Path) -> None:
    tokens = [*control("<pad>", "</s>"), ("<unk>", TokenType.UNKNOWN), *normal("▁a", "b", "▁", "▁ab")]
    flags: dict[str, Any] = {"add_eos_token_id": 1, "add_unk_token_id": 2}
    path = write_gguf(
        tmp_path / "x.gguf", "t5", tokens, add_token_scores=[0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -2.5], **flags
    )
    loaded = load_gguf_tokenizer(path)
    assert pieces(loaded, "ab a", special=True) == ["▁ab", "▁a", "</s>"]
    assert loaded.tokenizer.decode([6, 3, 1]) == "ab a"


@pytest.mark.parametrize("kind", ["bert", "rwkv", "plamo2", "none", "gpt-9"])
def test_an_unsupported_tokenizer_model_is_named(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=rf"unsupported tokenizer model '{kind}' \(tokenizer\.ggml\.model\)"):
        load_gguf_tokenizer(write_gguf(tmp_path / "x.gguf", kind, normal("a")))


@pytest.mark.parametrize(
    ("tokens", "extra", "message"),
    [
        (normal("a", "a"), {}, "'a' more than once"),
        (normal("a"), {"add_token_merges": ["ab"]}, r"merges\[0\] is 'ab', not a pair"),
        (normal("a"), {"add_eos_token_id": 1}, "eos_token_id is 1, but there are 1 tokens"),
    ],
)
def test_inconsistent_vocabularies(tokens: Tokens, extra: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=message):
        load_gguf_tokenizer(write_gguf(tmp_path / "x.gguf", "gpt2", tokens, **extra))


def test_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    sentencepiece(path)
    whole = path.read_bytes()
    for size in (24, 100, len(whole) // 2, len(whole) - 100):
        path.write_bytes(whole[:size])
        with pytest.raises(GgufError, match="damaged"):
            read_metadata(path, {"tokenizer.ggml.tokens", "tokenizer.ggml.scores"}, prefixes=("tokenizer.ggml.to",))


def test_a_git_lfs_pointer(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(POINTER)
    with pytest.raises(ModelFileError, match=r"x\.gguf is a Git LFS pointer, not the file itself; run git lfs pull"):
        load_gguf_tokenizer(tmp_path / "x.gguf")


def test_texts_round_trip(tmp_path: Path) -> None:
    tokenizers = [byte_level(tmp_path / "a.gguf"), sentencepiece(tmp_path / "b.gguf")]

    @given(st.text(st.characters(codec="utf-8", exclude_characters="▁")))
    def check(text: str) -> None:
        for loaded in tokenizers:
            assert loaded.tokenizer.decode(loaded.tokenizer.encode(text, add_special_tokens=False).ids) == text

    check()


def test_ids_of_the_default_model_are_those_it_was_trained_with(smollm2: Path) -> None:
    """Except control tokens, which client text never becomes."""
    tokenizer = load_gguf_tokenizer(smollm2).tokenizer
    lines = Path(__file__).with_name("smollm2_ids.jsonl").read_text().splitlines()
    assert len(lines) == 204
    for each in map(json.loads, lines):
        if "<|im_" not in each["text"]:
            assert tokenizer.encode(each["text"], add_special_tokens=False).ids == each["ids"], each["text"]
