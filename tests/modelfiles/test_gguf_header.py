from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelfiles.errors import ModelFileError
from modelfiles.gguf_header import read_header
from tests.engine_svc import tiny


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with metadata of every type."""
    path = tmp_path_factory.mktemp("gguf") / "every.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.uint8", 200)
    writer.add_int8("a.int8", -100)
    writer.add_uint16("a.uint16", 60000)
    writer.add_int16("a.int16", -30000)
    writer.add_uint32("a.uint32", 4_000_000_000)
    writer.add_int32("a.int32", -2_000_000_000)
    writer.add_uint64("a.uint64", 2**63)
    writer.add_int64("a.int64", -(2**62))
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "größer")
    writer.add_array("a.numbers", [3, 1, 2])
    writer.add_array("a.strings", ["one", "", "three"])
    writer.add_string("b.after_the_strings", "still found")
    writer.add_tensor("matrix", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("vector", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_value_is_as_the_gguf_package_reads_it(path: Path) -> None:
    theirs = gguf.GGUFReader(path)

    ours = read_header(path).metadata

    strings = ours.keys() ^ {key for key in theirs.fields if not key.startswith("GGUF.")}
    assert strings == {"a.strings"}, "only the list of strings is skipped"
    assert ours == {key: theirs.fields[key].contents() for key in ours}


def test_every_tensor_is_where_the_gguf_package_finds_it(path: Path) -> None:
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}

    ours = read_header(path).tensors

    assert [tensor.name for tensor in ours] == list(theirs)
    for tensor in ours:
        assert tensor.offset == theirs[tensor.name].data_offset
        assert tensor.type == theirs[tensor.name].tensor_type
        assert tensor.num_rows * tensor.row_bytes == theirs[tensor.name].n_bytes
        assert list(tensor.shape[::-1]) == theirs[tensor.name].shape.tolist()


def test_an_alignment_of_zero_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "zero.gguf", "llama")
    writer.add_uint32("general.alignment", 0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    with pytest.raises(ModelFileError, match="alignment 0"):
        read_header(tmp_path / "zero.gguf")


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_tensors_start_at_the_alignment_that_the_file_names(tmp_path: Path, alignment: int) -> None:
    writer = gguf.GGUFWriter(tmp_path / "aligned.gguf", "llama")
    writer.add_custom_alignment(alignment)
    writer.add_tensor("first", np.ones(3, dtype=np.float32))
    writer.add_tensor("second", np.full(3, 7, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    first, second = read_header(tmp_path / "aligned.gguf").tensors

    content = (tmp_path / "aligned.gguf").read_bytes()
    assert first.offset % alignment == second.offset % alignment == 0
    assert np.frombuffer(content, np.float32, 3, second.offset).tolist() == [7.0, 7.0, 7.0]


@settings(max_examples=60)
@given(data=st.data())
def test_a_truncated_file_is_refused(path: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = path.read_bytes()
    # The last tensor is followed by padding, which may be missing.
    end = read_header(path).tensors[-1].offset + read_header(path).tensors[-1].row_bytes
    cut = tmp_path_factory.mktemp("cut") / "cut.gguf"
    cut.write_bytes(content[: data.draw(st.integers(0, end - 1))])

    with pytest.raises(ModelFileError):
        read_header(cut)


@settings(max_examples=200)
@given(at=st.integers(0, 600), value=st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(
    path: Path, tmp_path_factory: pytest.TempPathFactory, at: int, value: int
) -> None:
    content = bytearray(path.read_bytes())
    content[at] = value
    changed = tmp_path_factory.mktemp("changed") / "changed.gguf"
    changed.write_bytes(content)

    try:
        tensors = read_header(changed).tensors
    except ModelFileError:
        tensors = ()
    assert all(tensor.offset + tensor.num_rows * tensor.row_bytes <= len(content) for tensor in tensors)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not a GGUF file"),
        (b"PK\x03\x04 a zip file of some length, surely no GGUF", "is not a GGUF file"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(16), "version 1"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(16), "version"),
        (b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16, "is damaged: invalid GGUF header"),
    ],
)
def test_invalid_files_are_refused_with_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "odd.gguf").write_bytes(content)

    with pytest.raises(ModelFileError, match=reason):
        read_header(tmp_path / "odd.gguf")


def test_the_head_of_a_real_file(smollm2: Path) -> None:
    header = read_header(smollm2)

    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.block_count"] == 30
    assert "tokenizer.ggml.tokens" not in header.metadata
    assert len(header.tensors) == 272


def test_a_checkpoint_written_like_llama_cpp_does(tmp_path: Path) -> None:
    model = tiny.random_model(tiny.llama())

    header = read_header(Path(tiny.save_gguf(model, tmp_path / "tiny.gguf")))

    embedding = next(tensor for tensor in header.tensors if tensor.name == "token_embd.weight")
    assert embedding.shape == tuple(model.model.embed_tokens.weight.shape)
