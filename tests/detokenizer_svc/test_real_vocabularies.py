from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter, TokenType
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.server import load_vocabulary as load
from detokenizer_svc.vocabulary import Vocabulary
from modelfiles.errors import ModelFileError
from protos import simulated
from svclib.config import SettingsError
from tests.detokenizer_svc.given import cut, from_json, run
from tests.modelfiles.given import POINTER

FOLDER = Path(__file__).parents[2] / ".models" / "tokenizers"
NAMES = ("deepseek_v3", "gemma3", "gptoss", "llama3_1", "qwen3")
TEXTS = (
    "Hello, world!  Two  spaces,\n\n\ttabs\r\nand 12345 numbers.",
    "naïve café — “quotes” … Ünïcödé",
    "京都市は日本の都市です。한국어 텍스트, русский язык, العربية, हिन्दी",
    "🔥🌶️👩‍👩‍👧‍👦 emoji 🇫🇷",
    "def f(x):\n    return {'a': [1, 2.5e-3], \"b\": None}\n",
    "<think>hm</think><tool_call>{\"name\": \"f\"}</tool_call>",
    " leading and trailing ",
)  # fmt: skip


@cache
def real(name: str) -> tuple[Vocabulary, Tokenizer]:
    path = FOLDER / name / "tokenizer.json"
    if not path.is_file():
        pytest.skip(f"{path} is not there; `make test` fetches it")
    return load(str(path.parent)), Tokenizer.from_file(str(path))


def decoded(vocabulary: Vocabulary, token_ids: list[int], *, skip_special_tokens: bool, size: int = 1) -> str:
    spec = FormatSpec(skip_special_tokens=skip_special_tokens)
    return run(spec, cut(token_ids, size), vocabulary=vocabulary).content


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_texts_round_trip_through_a_real_vocabulary(name: str, skip: bool) -> None:
    vocabulary, tokenizer = real(name)
    for text in TEXTS:
        token_ids = tokenizer.encode(text).ids
        assert decoded(vocabulary, token_ids, skip_special_tokens=skip) == tokenizer.decode(
            token_ids, skip_special_tokens=skip
        )
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        assert decoded(vocabulary, plain, skip_special_tokens=skip) == text


@pytest.mark.parametrize("name", NAMES)
def test_every_single_token_decodes_as_in_the_tokenizer(name: str) -> None:
    vocabulary, tokenizer = real(name)
    assert len(vocabulary) == max(tokenizer.get_vocab().values()) + 1
    special = {n for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    assert set(vocabulary.special) == special
    for token_id in range(0, len(vocabulary), 7):
        assert vocabulary.text_of(token_id) == tokenizer.decode([token_id], skip_special_tokens=False)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gemma3"])
def test_any_sequence_of_tokens_decodes_as_in_the_tokenizer(name: str) -> None:
    vocabulary, tokenizer = real(name)

    @given(st.lists(st.integers(0, len(vocabulary) - 1), max_size=12), st.booleans())
    def check(token_ids: list[int], skip: bool) -> None:
        expected = tokenizer.decode(token_ids, skip_special_tokens=skip)
        assert decoded(vocabulary, token_ids, skip_special_tokens=skip) == expected

    check()


def test_the_vocabulary_of_a_real_gguf_file(smollm2: Path) -> None:
    vocabulary = load(str(smollm2))
    assert len(vocabulary) == 49152
    assert vocabulary.special[2] == "<|im_end|>"
    assert len(vocabulary.special) == 17
    tokens = {vocabulary.text_of(n): n for n in range(len(vocabulary))}
    assert decoded(vocabulary, [tokens[" Paris"], tokens["."], 2], skip_special_tokens=True) == " Paris."
    assert b"\xf0\x9f" in vocabulary.bytes_by_id


@pytest.mark.slow
def test_a_real_gguf_file_as_transformers_reads_it(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(smollm2.parent), gguf_file=smollm2.name)
    vocabulary = load(str(smollm2))
    for text in TEXTS:
        token_ids = tokenizer.encode(text, add_special_tokens=False)
        assert decoded(vocabulary, token_ids, skip_special_tokens=False) == text
    for token_id in range(17, len(vocabulary), 5):
        assert vocabulary.text_of(token_id) == tokenizer.decode([token_id])


def test_the_simulated_vocabulary() -> None:
    vocabulary = load(simulated.MODEL_NAME)
    assert len(vocabulary) == simulated.VOCAB_SIZE
    assert vocabulary.bytes_by_id[:256] == tuple(bytes([n]) for n in range(256))
    assert vocabulary.special[simulated.EOS_TOKEN_ID] == simulated.EOS_TOKEN
    assert tuple(vocabulary.special.values()) == simulated.CONTROL_TOKENS


def description(decoder: dict[str, Any], vocab: Any, added: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"model": {"type": "BPE", "vocab": vocab}, "decoder": decoder, "added_tokens": list(added)}


METASPACE = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]}


@pytest.mark.parametrize(
    ("decoder", "vocab", "expected"),
    [
        ({"type": "ByteLevel"}, {"Ġa": 0, "Ċ": 1, "Ã©": 2, "ð": 3}, (b" a", b"\n", b"\xc3\xa9", b"\xf0")),
        ({"type": "ByteLevel"}, {"▁": 0, " ": 1, "\xad": 2}, ("▁".encode(), b" ", "\xad".encode())),
        ({"type": "Sequence", "decoders": [{"type": "ByteLevel"}]}, {"ĠĠ": 0}, (b"  ",)),
        (METASPACE, {"▁a": 0, "▁▁": 1, "<0x0A>": 2, "<0xzz>": 3}, (b" a", b"  ", b"\n", b"<0xzz>")),
        ({"type": "Metaspace"}, [["▁a", -1.5], ["b", -2]], (b" a", b"b")),
        ({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}, {"<0xFF>": 0}, (b"\xff",)),
    ],
)  # fmt: skip
def test_bytes_of_tokens_by_decoder(decoder: dict[str, Any], vocab: Any, expected: tuple[bytes, ...]) -> None:
    assert from_json(description(decoder, vocab), {}).bytes_by_id == expected


def test_added_tokens_are_spelled_as_they_are_and_the_configuration_overrides_them() -> None:
    added = (
        {"id": 1, "content": "<Ġ>", "special": True},
        {"id": 2, "content": "  ", "special": False},
        {"id": 3, "content": "<x>", "special": False},
    )
    config = {"added_tokens_decoder": {"3": {"content": "<x>", "special": True}, "5": {"content": "<y>"}}}
    vocabulary = from_json(description({"type": "ByteLevel"}, {"a": 0}, added), config)
    assert vocabulary.bytes_by_id == (b"a", "<Ġ>".encode(), b"  ", b"<x>", b"", b"<y>")
    assert dict(vocabulary.special) == {1: "<Ġ>", 3: "<x>"}


def test_word_pieces_start_words_or_continue_them() -> None:
    added = ({"id": 3, "content": "[SEP]", "special": True},)
    vocabulary = from_json(description({"type": "WordPiece"}, {"play": 0, "##ing": 1, "##": 2}, added), {})

    assert vocabulary.bytes_by_id == (b" play", b"ing", b"", b"[SEP]")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (description({"type": "CTC"}, {"a": 0}), "unsupported decoder step 'CTC'"),
        ({"model": {"vocab": {"a": 0}}}, "unsupported tokenizer: it has no decoder"),
        ({"decoder": {"type": "ByteLevel"}}, "not in the usual format"),
        (description({"type": "ByteLevel"}, {"a": 0}, ({"id": 1},)), "not in the usual format"),
        (description({"type": "ByteLevel"}, 5), "not in the usual format"),
    ],
)
def test_unsupported_tokenizers_are_refused_by_name(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        from_json(content, {})


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(description({"type": "ByteLevel"}, {"a": 0, "<s>": 1})))
    assert load(str(tmp_path)).text_by_id == (b"a", b"<s>")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"added_tokens_decoder": {"1": {"content": "<s>", "special": True}}})
    )
    assert load(str(tmp_path)).text_by_id == (b"a", b"")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, r"has no tokenizer\.json"), ("{", "cannot read"), ("[]", "is not a JSON object"), ("\x00", "cannot read")],
)
def test_folders_that_cannot_be_used(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(SettingsError, match=message):
        load(str(tmp_path))


def test_an_id_that_cannot_be_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SettingsError, match=r"cannot download tokenizer\.json of 'nobody/nothing'"):
        load("nobody/nothing")


def test_an_id_in_the_local_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_text(json.dumps(description({"type": "ByteLevel"}, {"a": 0})))
    assert load("some/model").bytes_by_id == (b"a",)
    (snapshot / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"1": {"content": "b"}}}))
    assert load("some/model").bytes_by_id == (b"a", b"b")


def gguf(path: Path, model: str | None, tokens: list[str], types: list[TokenType] | None) -> Path:
    writer = GGUFWriter(path, "llama")
    if model:
        writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    if types:
        writer.add_token_types(types)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


SENTENCEPIECE = ["<unk>", "<s>", "<0x0A>", "▁a", "▁▁", "<tool▁>", "<0x>"]
SENTENCEPIECE_TYPES = [
    TokenType.UNKNOWN, TokenType.CONTROL, TokenType.BYTE, TokenType.NORMAL, TokenType.USER_DEFINED,
    TokenType.USER_DEFINED, TokenType.NORMAL,
]  # fmt: skip


def test_a_sentencepiece_gguf_file(tmp_path: Path) -> None:
    vocabulary = load(str(gguf(tmp_path / "x.gguf", "llama", SENTENCEPIECE, SENTENCEPIECE_TYPES)))
    assert vocabulary.text_by_id == (b"", b"", b"\n", b" a", b"  ", b"<tool >", b"<0x>")
    assert dict(vocabulary.special) == {0: "<unk>", 1: "<s>"}


def test_a_byte_level_gguf_file(tmp_path: Path) -> None:
    path = gguf(
        tmp_path / "x.gguf",
        "gpt2",
        ["Ġa", "<|eot|>", "<Ġ>"],
        [TokenType.NORMAL, TokenType.CONTROL, TokenType.USER_DEFINED],
    )
    assert load(str(path)).bytes_by_id == (b" a", b"<|eot|>", "<Ġ>".encode())
    assert load(str(gguf(tmp_path / "y.gguf", "gpt2", ["Ġa"], None))).text_by_id == (b" a",)


@pytest.mark.parametrize("model", ["bert", "rwkv", None])
def test_a_gguf_file_with_an_unsupported_tokenizer_model(tmp_path: Path, model: str | None) -> None:
    with pytest.raises(SettingsError, match=f"unsupported tokenizer model {model!r}"):
        load(str(gguf(tmp_path / "x.gguf", model, ["a"], None)))


def gguf_files(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "absent.gguf"
    (tmp_path / "empty.gguf").touch()
    yield tmp_path / "empty.gguf"
    (tmp_path / "folder.gguf").mkdir()
    yield tmp_path / "folder.gguf"


def test_gguf_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in gguf_files(tmp_path):
        with pytest.raises(SettingsError, match="cannot read"):
            load(str(path))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "x.gguf"])
def test_git_lfs_pointers(tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(description({"type": "ByteLevel"}, {"a": 0})))
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(SettingsError, match="is a Git LFS pointer, not the file itself; run git lfs pull"):
        load(str(tmp_path / name if name == "x.gguf" else tmp_path))
