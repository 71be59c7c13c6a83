"""The compiled forward pass. tests/numerics compares every family with transformers."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from torch import Tensor

from engine_svc.attention.interface import PagedBatch
from engine_svc.executors.cpu import decoder
from engine_svc.executors.cpu.executor import CpuExecutor
from engine_svc.executors.cpu.weights import pack_weights
from engine_svc.executors.interface import PreparedStep
from engine_svc.executors.torch.executor import TorchExecutor
from engine_svc.kernels.library import Kernels, load_kernels
from engine_svc.kernels.packing import Format
from engine_svc.layers.norm import NormConfig
from engine_svc.layers.rotary import RopeConfig
from engine_svc.models.config import DecoderConfig, LayerConfig, RawConfig
from engine_svc.models.registry import find_family
from engine_svc.weights.checkpoint import open_checkpoint
from engine_svc.weights.errors import ModelLoadError
from tests.engine_svc import loaded, tiny

BLOCK_SIZE = 4
BLOCKS_EACH = 8
FORMATS = [Format.FLOAT32, Format.BFLOAT16, Format.INT16, Format.INT8]


@pytest.fixture
def kernels() -> Kernels:
    found = load_kernels()
    if found is None:
        pytest.skip("needs a compiler")
    return found


def load(path: Path, format_: Format) -> CpuExecutor:
    executor = loaded.load(
        path, executor="cpu", num_blocks=6 * BLOCKS_EACH, block_size=BLOCK_SIZE, **loaded.FORMATS[format_]
    )
    assert isinstance(executor, CpuExecutor)
    return executor


def prompts(executor: CpuExecutor, lengths: list[int]) -> list[Tensor]:
    """Logits of all tokens of sequences that are computed in one step; sequence i begins with token i."""
    positions = torch.cat([torch.arange(length) for length in lengths])
    owners = torch.repeat_interleave(torch.tensor(lengths))
    tables = torch.arange(BLOCKS_EACH * len(lengths), dtype=torch.int32).view(len(lengths), -1)
    batch = PagedBatch(
        slot_mapping=tables[owners, positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE,
        query_starts=torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32),
        context_lens=torch.tensor(lengths, dtype=torch.int32),
        block_tables=tables,
    )
    input_ids = (3 * positions + owners) % executor.info.vocab_size
    rows = torch.arange(len(positions))
    return list(executor.forward(PreparedStep(input_ids, positions, rows, len(rows), batch))[:].split(lengths))


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_sequence_is_batch_invariant(tmp_path: Path, kernels: Kernels, format_: Format, num_threads: int) -> None:
    torch.set_num_threads(1)
    model = load(Path(tiny.save(tiny.random_model(tiny.qwen3()), tmp_path)), format_)
    (alone,) = prompts(model, [13])
    torch.set_num_threads(num_threads)
    others = load(tmp_path, format_)

    together = prompts(others, [13, 1, 30, 2, 17, 5])

    torch.set_num_threads(1)
    assert torch.equal(together[0], alone)


@pytest.mark.parametrize("stored", [gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1])
@pytest.mark.parametrize(("format_", "off"), [(Format.INT16, 0.03), (Format.INT8, 0.1)])
def test_stored_integers_stay_as_they_are(
    tmp_path: Path, kernels: Kernels, stored: gguf.GGMLQuantizationType, format_: Format, off: float
) -> None:
    config = tiny.llama(hidden_size=64, intermediate_size=96, head_dim=8)
    path = Path(tiny.save_gguf(tiny.random_model(config), tmp_path / "tiny.gguf", kind=stored))

    (ours,) = prompts(load(path, format_), [30])

    # Only activations and cache are rounded, so what the file says in floats is near.
    (theirs,) = prompts(load(path, Format.FLOAT32), [30])
    weights = pack_weights(open_checkpoint(path), _config(path), format_, lanes=kernels.lanes)
    assert {matrix.format for matrix in weights.matrices.values()} == {Format.INT4}
    assert (ours - theirs).square().mean().sqrt() < off * theirs.std()


def standing_out(path: Path, *, tokens: range) -> Path:
    """A model with two outlier channels, for some tokens only, and with smaller weights."""
    model = tiny.random_model(tiny.llama(hidden_size=160, intermediate_size=192, head_dim=40))
    with torch.no_grad():
        for channel in (3, 70):
            model.model.embed_tokens.weight[tokens, channel] *= 60.0
            for layer in model.model.layers:
                attention, mlp = layer.self_attn, layer.mlp
                for linear in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
                    linear.weight[:, channel] /= 600.0
    return Path(tiny.save(model, path))


def standing_out_late(path: Path) -> Path:
    """A model with an outlier channel in the 66th group of its rows, beside the channels that matter most."""
    model = tiny.random_model(tiny.llama(num_hidden_layers=1, hidden_size=160, intermediate_size=2112, head_dim=40))
    with torch.no_grad():
        mlp = model.model.layers[0].mlp
        mlp.up_proj.weight[2100] *= 100.0
        mlp.down_proj.weight[:, 2080:] *= 20.0
        mlp.down_proj.weight[:, 2100] /= 2000.0
    return Path(tiny.save(model, path))


def lost(path: Path, format_: Format, kernels: Kernels) -> float:
    """The error of a format relative to the spread of the logits."""
    (exact,) = prompts(load(path, Format.FLOAT32), [30])
    (found,) = prompts(load(path, format_), [30])
    return float((found - exact).square().mean().sqrt() / exact.std())


def test_outliers_cost_other_values_little_precision(tmp_path: Path, kernels: Kernels) -> None:
    path = standing_out(tmp_path, tokens=range(97))

    # With 15 bits, weights of 8 bits are what is lost.
    assert lost(path, Format.INT8, kernels) < 1.2 * lost(
        path, Format.INT16, kernels
    )  # 1.11; 1.29 without second digits


@pytest.mark.parametrize("format_", [Format.INT16, Format.INT8])
def test_outlier_groups_are_decomposed_wherever_they_are(tmp_path: Path, kernels: Kernels, format_: Format) -> None:
    path = standing_out_late(tmp_path)

    assert lost(path, format_, kernels) < 0.095  # 0.075 and 0.081; above 0.11 if the last groups have none


def test_rows_beside_an_outlier_have_the_same_bits(tmp_path: Path, kernels: Kernels) -> None:
    model = load(standing_out(tmp_path, tokens=range(0, 97, 5)), Format.INT8)
    (alone,) = prompts(model, [13])
    others = load(tmp_path, Format.INT8)

    together = prompts(others, [13, 1, 30, 2, 17, 5])

    assert torch.equal(together[0], alone)


def test_other_weights_get_eight_bits(tmp_path: Path, kernels: Kernels) -> None:
    path = Path(tiny.save(tiny.random_model(tiny.llama()), tmp_path))

    weights = pack_weights(open_checkpoint(path), _config(path), Format.INT8, lanes=kernels.lanes)

    assert {matrix.format for matrix in weights.matrices.values()} == {Format.INT8}
    assert all(vector.dtype == torch.float32 for vector in weights.vectors.values())


def test_missing_weights_are_named(tmp_path: Path, kernels: Kernels) -> None:
    model = tiny.random_model(tiny.llama())
    del model.model.layers[1].mlp.down_proj
    path = Path(tiny.save(model, tmp_path))

    with pytest.raises(ModelLoadError, match=r"model\.layers\.1\.mlp\.down_proj\.weight"):
        load(path, Format.BFLOAT16)


@pytest.mark.parametrize("format_", FORMATS)
def test_nan_stays_nan(tmp_path: Path, kernels: Kernels, format_: Format) -> None:
    model = tiny.random_model(tiny.llama())
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[3, 5] = torch.inf
        model.model.layers[0].input_layernorm.weight[2] = torch.nan
    executor = load(Path(tiny.save(model, tmp_path)), format_)

    (logits,) = prompts(executor, [3])

    assert not logits.isfinite().any()


@pytest.mark.parametrize("table", ["_ACTIVATIONS", "_QK_NORM"])
def test_what_the_kernels_do_not_support_is_computed_by_torch(
    tmp_path: Path, kernels: Kernels, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(tiny.save(tiny.random_model(tiny.qwen3()), tmp_path))
    monkeypatch.setattr(decoder, table, {})

    executor = loaded.load(path)

    assert isinstance(executor, TorchExecutor)
    assert not executor.info.batch_invariant
    with pytest.raises(
        ModelLoadError,
        match=r"int8 needs the compiled kernels, which do not support this model: (activation silu|QK norm per head)",
    ):
        loaded.load(path, **loaded.FORMATS[Format.INT8])


def test_every_field_of_a_configuration_reaches_the_kernels() -> None:
    """A new field fails here until decoder.py passes it on, refuses it, or it is listed as passed another way."""
    read = set(re.findall(r"\.(\w+)", inspect.getsource(decoder)))

    for type_, another_way in ANOTHER_WAY.items():
        assert {field.name for field in fields(type_)} - read == another_way.keys()


ANOTHER_WAY: dict[type[Any], dict[str, str]] = {
    DecoderConfig: {
        "num_heads": "AttentionShape",
        "num_kv_heads": "AttentionShape",
        "attention_scale": "AttentionShape",
        "attention_softcap": "AttentionShape",
        "norm_placement": "the norms of a layer are there or not",
        "qkv_bias": "biases are among the stored weights or not",
        "out_bias": "as qkv_bias",
        "mlp_bias": "as qkv_bias",
        "packed": "matrices are one or several parts of a Linear",
        "tie_word_embeddings": "there is a head among the stored weights or not",
        "max_position_embeddings": "nothing that is computed depends on it",
        "vocab_size": "outputs of the embedding's matrix, and the info of the executor",
        "embedding_scale": "rounded by embedding_scale() of layout.py",
    },
    LayerConfig: {},
    NormConfig: {},
    RopeConfig: {"theta": "inverse frequencies", "scaling": "as theta", "partial_rotary_factor": "as theta"},
}


def _config(path: Path) -> DecoderConfig:
    config = open_checkpoint(path).config
    return find_family(config).read_config(RawConfig(config))
