"""From how many rows on a model's products use matrix tiles: measured once, when it is loaded."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import structlog

from engine_svc.executors.cpu.weights import PackedWeights
from engine_svc.kernels.library import Kernels
from engine_svc.kernels.packing import Format, PackedMatrix
from engine_svc.kernels.tiles import REASONS, TileSupport, agree, measure_ratios, smallest_row_count
from engine_svc.models.precision import INTEGERS

_WEIGHTS: Final = (Format.INT8, Format.INT4)

log = structlog.get_logger(__name__)


def measure_tile_rows(weights: PackedWeights, kernels: Kernels, *, num_threads: int) -> dict[Format, int]:
    """For each format of weights; 0 if tiles are never faster. Empty where they cannot be used."""
    if weights.format not in INTEGERS or kernels.tile_support is TileSupport.ABSENT:
        return {}
    if kernels.tile_support is not TileSupport.USABLE:
        log.warning("matrix tiles (AMX) cannot be used; vectors are", reason=REASONS[kernels.tile_support])
        return {}
    return {
        format_: _measure(matrices, weights.format, kernels, num_threads)
        for format_ in _WEIGHTS
        if (matrices := _largest(weights, format_))
    }


def _measure(matrices: list[PackedMatrix], activations: Format, kernels: Kernels, num_threads: int) -> int:
    if not agree(kernels.multiply, matrices, activations, lanes=kernels.lanes, num_threads=num_threads):
        log.error("matrix tiles (AMX) gave other bits than vectors; vectors are used")
        return 0
    ratios = measure_ratios(kernels.multiply, matrices, activations, lanes=kernels.lanes, num_threads=num_threads)
    rows = smallest_row_count(ratios)
    log.info(
        "matrix tiles (AMX) measured",
        weights=matrices[0].format.name.lower(),
        used_from_rows=rows or None,
        time_relative_to_vectors={count: round(ratio, 2) for count, ratio in ratios.items()},
    )
    return rows


def _largest(weights: PackedWeights, format_: Format) -> list[PackedMatrix]:
    """The matrices of this format in the shape that has most of its weights."""
    shapes: dict[tuple[int, int], list[PackedMatrix]] = defaultdict(list)
    for matrix in weights.matrices.values():
        if matrix.format is format_:
            shapes[matrix.outputs, matrix.inputs].append(matrix)
    return max(shapes.values(), key=lambda same: sum(matrix.panels.numel() for matrix in same), default=[])
