from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from gguf import GGUFWriter

from modelfiles.gguf_metadata import GgufError, read_metadata


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A GGUF file with a value of each type, and a tensor."""
    import numpy as np

    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint8("u8", 8)
    writer.add_int8("i8", -8)
    writer.add_uint16("u16", 16)
    writer.add_int16("i16", -16)
    writer.add_uint32("u32", 32)
    writer.add_int32("i32", -32)
    writer.add_float32("f32", 0.5)
    writer.add_uint64("u64", 2**40)
    writer.add_int64("i64", -(2**40))
    writer.add_float64("f64", 0.1)
    writer.add_bool("bool", True)
    writer.add_string("string", "京都")
    writer.add_array("strings", ["a", "", "京"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_string("last", "end")
    writer.add_tensor("weight", np.zeros((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_type(file: Path) -> None:
    expected = {
        "u8": 8, "i8": -8, "u16": 16, "i16": -16, "u32": 32, "i32": -32, "f32": 0.5, "u64": 2**40, "i64": -(2**40),
        "f64": 0.1, "bool": True, "string": "京都", "strings": ["a", "", "京"], "numbers": [1, 2, 3], "last": "end",
    }  # fmt: skip
    assert read_metadata(file, expected) == expected


@pytest.mark.parametrize("keys", [["last"], ["absent", "last"], ["strings", "absent"]])
def test_only_requested_keys_that_exist(file: Path, keys: list[str]) -> None:
    assert set(read_metadata(file, keys)) == set(keys) - {"absent"}


def test_a_file_truncated_anywhere_is_damaged(file: Path) -> None:
    content = file.read_bytes()
    end = content.index(b"end")
    for length in range(end):
        file.write_bytes(content[:length])
        with pytest.raises(GgufError):
            read_metadata(file, ["last"])


@pytest.mark.parametrize("at", range(4, 80))
def test_a_damaged_byte_is_an_error_or_another_value(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    for value in (0, 9, 255):
        content[at] = value
        file.write_bytes(content)
        with suppress(GgufError):
            assert set(read_metadata(file, ["last", "strings", "u8"])) <= {"last", "strings", "u8"}


@pytest.mark.parametrize("version", [0, 1, 4, 3 << 24])
def test_other_versions_are_refused(file: Path, version: int) -> None:
    content = bytearray(file.read_bytes())
    content[4:8] = version.to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(GgufError, match=f"version {version}"):
        read_metadata(file, ["last"])


@pytest.mark.parametrize("content", [b"", b"GGUF", b"PK\x03\x04" * 10])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufError, match="not a GGUF file"):
        read_metadata(path, [])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"x\.gguf"):
        read_metadata(tmp_path / "x.gguf", [])
