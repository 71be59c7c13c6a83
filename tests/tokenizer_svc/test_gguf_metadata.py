from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFWriter

from tests.tokenizer_svc import real
from tokenizer_svc.gguf_metadata import GgufError, read_metadata


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("a.number", 7)
    writer.add_int64("a.negative", -(2**40))
    writer.add_float32("a.fraction", 0.5)
    writer.add_bool("a.flag", True)
    writer.add_string("a.text", "Zürich")
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_array("a.texts", ["x", "", "ü"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_values_of_each_kind(path: Path) -> None:
    expected = {
        "a.number": 7,
        "a.negative": -(2**40),
        "a.fraction": 0.5,
        "a.flag": True,
        "a.text": "Zürich",
        "a.numbers": [1, 2, 3],
        "a.texts": ["x", "", "ü"],
    }
    assert read_metadata(path, [*expected, "a.missing"]) == expected
    assert read_metadata(path, ["a.texts"]) == {"a.texts": ["x", "", "ü"]}


def test_a_real_file() -> None:
    metadata = read_metadata(real.gguf_file(), ["general.architecture", "tokenizer.ggml.tokens"])
    assert metadata["general.architecture"] == "llama"
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert (len(tokens), tokens[:3]) == (49152, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def test_other_versions(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4] = 1
    path.write_bytes(content)
    with pytest.raises(GgufError, match="version 1 is not supported"):
        read_metadata(path, ["a.text"])
