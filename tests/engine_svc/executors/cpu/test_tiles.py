"""Which products of a loaded model use matrix tiles, and what the log says about it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import pytest
from structlog.testing import capture_logs
from torch import Tensor

from engine_svc.executors.cpu.decoder import DecoderStructure
from engine_svc.executors.cpu.tiles import measure_tile_rows
from engine_svc.executors.cpu.weights import PackedWeights, pack_weights
from engine_svc.kernels.packing import Format
from engine_svc.kernels.products import TimedProduct
from engine_svc.kernels.structures import AttentionShape, Linear
from engine_svc.kernels.tiles import ROW_COUNTS, TileSupport
from engine_svc.models.registry import read_native
from engine_svc.weights.checkpoint import open_checkpoint
from tests.engine_svc import tiny

LANES = 16


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with layers of 4 bits, and an embedding that is quantised to 8 bits."""
    model = tiny.random_model(tiny.llama(hidden_size=64, intermediate_size=96, head_dim=8))
    folder = tmp_path_factory.mktemp("tiles")
    return Path(tiny.save_gguf(model, folder / "tiny.gguf", kind=gguf.GGMLQuantizationType.Q4_0))


def packed(path: Path, format_: Format) -> PackedWeights:
    checkpoint = open_checkpoint(path)
    _, config = read_native(checkpoint.config)
    return pack_weights(checkpoint, config, format_, lanes=LANES)


def kernels(support: TileSupport, *, error: float = 0.0, **ratios: float) -> Any:
    """Fake kernels whose tiles take so much of the time of vectors, from 64 rows on and below.

    ``error`` is the difference of their results.
    """

    def multiply(linear: Linear, activations: Format, rows: Tensor, *, num_threads: int) -> TimedProduct:
        assert activations is Format.INT8
        assert num_threads == 3
        if linear.parts[0].tile_rows == 0:
            return TimedProduct(rows.sum(1), 1.0)
        return TimedProduct(rows.sum(1) + error, ratios["many"] if len(rows) >= 64 else ratios["few"])

    return SimpleNamespace(tile_support=support, lanes=LANES, multiply=multiply)


def test_the_border_is_measured_for_each_format_of_weights_and_logged(path: Path) -> None:
    weights = packed(path, Format.INT8)
    formats = {matrix.format for matrix in weights.matrices.values()}

    with capture_logs() as logs:
        borders = measure_tile_rows(weights, kernels(TileSupport.USABLE, few=1.1, many=0.6), num_threads=3)

    assert borders == dict.fromkeys(formats, 64)
    assert {log["weights"] for log in logs} == {format_.name.lower() for format_ in formats}
    ratios = {rows: 0.6 if rows >= 64 else 1.1 for rows in ROW_COUNTS}
    for log in logs:
        assert (log["log_level"], log["used_from_rows"], log["time_relative_to_vectors"]) == ("info", 64, ratios)


def test_tiles_that_are_slower_are_never_used(path: Path) -> None:
    with capture_logs() as logs:
        borders = measure_tile_rows(
            packed(path, Format.INT8), kernels(TileSupport.USABLE, few=1.0, many=1.0), num_threads=3
        )  # fmt: skip

    assert set(borders.values()) == {0}
    assert {log["used_from_rows"] for log in logs} == {None}


def test_tiles_with_other_bits_are_never_used(path: Path) -> None:
    wrong = kernels(TileSupport.USABLE, few=0.5, many=0.5, error=1e-3)

    with capture_logs() as logs:
        borders = measure_tile_rows(packed(path, Format.INT8), wrong, num_threads=3)

    assert set(borders.values()) == {0}
    assert {log["log_level"] for log in logs} == {"error"}


def test_floats_are_not_measured(path: Path) -> None:
    with capture_logs() as logs:
        assert measure_tile_rows(packed(path, Format.BFLOAT16), kernels(TileSupport.USABLE), num_threads=3) == {}
    assert logs == []


def test_a_cpu_without_tiles_is_no_news(path: Path) -> None:
    with capture_logs() as logs:
        assert measure_tile_rows(packed(path, Format.INT8), kernels(TileSupport.ABSENT), num_threads=3) == {}
    assert logs == []


@pytest.mark.parametrize("support", sorted({*TileSupport} - {TileSupport.USABLE, TileSupport.ABSENT}))
def test_listed_tiles_that_cannot_be_used_are_logged(path: Path, support: TileSupport) -> None:
    with capture_logs() as logs:
        assert measure_tile_rows(packed(path, Format.INT8), kernels(support), num_threads=3) == {}

    (log,) = logs
    assert log["log_level"] == "warning"
    assert log["event"] == "matrix tiles (AMX) cannot be used; vectors are"
    assert log["reason"]


def test_the_structure_has_the_border_of_each_matrix(path: Path) -> None:
    weights = packed(path, Format.INT8)

    structure = DecoderStructure(weights, AttentionShape(), {Format.INT4: 32, Format.INT8: 16}).structure

    borders = {Format.INT4: 32, Format.INT8: 16}
    layer = structure.layers[0]
    linears = [structure.head, layer.qkv, layer.out, layer.gate_up, layer.down]
    matrices = [linear.parts[part] for linear in linears for part in range(linear.num_parts)]
    assert [matrix.tile_rows for matrix in matrices] == [borders[Format(matrix.format)] for matrix in matrices]
    assert len(matrices) == 8


def test_no_border_is_no_tiles(path: Path) -> None:
    structure = DecoderStructure(packed(path, Format.INT8), AttentionShape(), {}).structure

    assert structure.head.parts[0].tile_rows == 0
