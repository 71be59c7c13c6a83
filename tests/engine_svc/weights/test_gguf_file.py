from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from engine_svc.weights import gguf_file
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.gguf_architectures import ARCHITECTURES
from engine_svc.weights.gguf_file import GgufFile, hugging_face_name
from tests.engine_svc import tiny


def load(file: GgufFile, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """All tensors of a file by their Hugging Face names."""
    loaded = {}
    for tensor in file.tensors():
        loaded[tensor.name] = torch.full(tensor.shape, torch.nan, dtype=dtype)
        tensor.copy_to(loaded[tensor.name])
    return loaded


@pytest.mark.parametrize(
    "changes", [{}, {"attention_bias": True, "mlp_bias": True}, {"tie_word_embeddings": True}, {"head_dim": 10}]
)
def test_names_and_values_equal_the_converted_model(tmp_path: Path, changes: dict[str, object]) -> None:
    model = tiny.random_model(tiny.llama(**changes))
    expected = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not (name == "lm_head.weight" and model.config.tie_word_embeddings)
    }

    loaded = load(GgufFile(Path(tiny.save_gguf(model, tmp_path / "tiny.gguf"))))

    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1])
def test_matrices_dequantise_as_in_the_gguf_package(tmp_path: Path, kind: Kind) -> None:
    model = tiny.random_model(tiny.llama(hidden_size=32, intermediate_size=64))
    matrix = model.model.layers[1].mlp.down_proj.weight.detach().numpy()
    expected = gguf.quants.dequantize(gguf.quants.quantize(matrix, kind), kind)

    loaded = load(GgufFile(Path(tiny.save_gguf(model, tmp_path / "tiny.gguf", kind=kind))))

    assert np.array_equal(loaded["model.layers.1.mlp.down_proj.weight"].numpy(), expected)


def test_conversion_in_chunks_gives_the_same_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.random_model(tiny.llama(hidden_size=32, intermediate_size=64))
    path = Path(tiny.save_gguf(model, tmp_path / "tiny.gguf", kind=Kind.Q8_0))
    whole = load(GgufFile(path))

    monkeypatch.setattr(gguf_file, "_CHUNK_ELEMENTS", 100)
    pieces = load(GgufFile(path))

    assert all(torch.equal(whole[name], pieces[name]) for name in whole)


def test_bfloat16_is_rounded_from_float32(tmp_path: Path) -> None:
    model = tiny.random_model(tiny.llama())
    path = Path(tiny.save_gguf(model, tmp_path / "tiny.gguf"))

    exact, rounded = load(GgufFile(path)), load(GgufFile(path), torch.bfloat16)

    assert all(torch.equal(rounded[name], exact[name].bfloat16()) for name in exact)


def minimal(path: Path, tensors: dict[str, npt.NDArray[Any]]) -> Path:
    """A file with the minimum metadata, and these tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("context_length", "embedding_length", "feed_forward_length", "block_count", "attention.head_count"):
        writer.add_uint32(f"llama.{key}", 1)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    for name, values in ({"token_embd.weight": np.zeros((2, 3), np.float32)} | tensors).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_an_unsupported_type_is_named(tmp_path: Path) -> None:
    path = minimal(tmp_path / "odd.gguf", {"odd": np.zeros((2, 3), np.int32)})

    with pytest.raises(ModelLoadError, match=r"odd: type I32 is not supported"):
        load(GgufFile(path))


@pytest.mark.parametrize(
    ("kind", "embedding_kind", "tied", "expected"),
    [
        (Kind.Q4_1, Kind.Q8_0, True, True),
        (Kind.Q4_0, Kind.F16, True, True),  # 86% of the elements
        (Kind.Q4_0, Kind.F16, False, False),  # 74%
        (Kind.F16, Kind.Q8_0, True, False),
        (Kind.Q5_0, Kind.Q8_0, True, False),
        (Kind.F16, Kind.F16, True, False),
    ],
)
def test_a_file_is_quantised_if_most_of_its_elements_are(
    tmp_path: Path, kind: Kind, embedding_kind: Kind, tied: bool, expected: bool
) -> None:
    model = tiny.random_model(tiny.llama(hidden_size=32, intermediate_size=64, tie_word_embeddings=tied))
    path = tiny.save_gguf(model, tmp_path / "tiny.gguf", kind=kind, embedding_kind=embedding_kind)

    assert GgufFile(Path(path)).is_quantized is expected


def test_rope_factors_are_configuration_not_weights(tmp_path: Path) -> None:
    path = Path(tiny.save_gguf(tiny.random_model(tiny.llama()), tmp_path / "plain.gguf"))
    stretched = minimal(tmp_path / "stretched.gguf", {"rope_freqs.weight": np.array([1.0, 8.0], np.float32)})

    assert GgufFile(path).config["rope_scaling"] is None
    assert GgufFile(stretched).config["rope_scaling"] == {"rope_type": "factors", "factors": [1.0, 8.0]}
    assert [tensor.name for tensor in GgufFile(stretched).tensors()] == ["model.embed_tokens.weight"]


def test_eos_and_eot_token_ids_are_read(tmp_path: Path) -> None:
    model = tiny.random_model(tiny.llama())
    path = Path(tiny.save_gguf(model, tmp_path / "tiny.gguf"))
    assert GgufFile(path).eos_token_ids == (2,)

    content = path.read_bytes()
    # Another key of the same length and type, so that offsets do not change.
    path.write_bytes(content.replace(b"tokenizer.ggml.eos_token_id", b"tokenizer.ggml.eot_token_id"))

    assert GgufFile(path).eos_token_ids == (2,)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.11.attn_k.bias", "model.layers.11.self_attn.k_proj.bias"),
        ("blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"),
        ("blk.0.attn_q_norm.weight", "blk.0.attn_q_norm.weight"),
        ("blk.x.attn_q.weight", "blk.x.attn_q.weight"),
        ("odd", "odd"),
    ],
)
def test_hugging_face_names(theirs: str, ours: str) -> None:
    assert hugging_face_name(theirs, ARCHITECTURES["llama"]) == ours
