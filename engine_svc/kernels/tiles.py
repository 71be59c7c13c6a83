"""Matrix tiles of the CPU (Intel AMX): whether they may be used, and from how many rows on they are faster.

They give the same bits as vectors (``csrc/tile_products.h``), so the choice changes the speed only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int32
from enum import IntEnum
from itertools import cycle, islice
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from engine_svc.kernels.packing import Format, PackedMatrix
from engine_svc.kernels.products import TimedProduct
from engine_svc.kernels.structures import Linear, Matrix
from engine_svc.weights.quantized import GROUP_SIZE

ROW_COUNTS: Final = (8, 16, 32, 64, 128, 256)
MAX_SECONDS: Final = 0.12
"""After which no round of a measurement begins. A model has at most two formats of integer weights to measure."""
_MIN_ROUNDS: Final = 3
_MAX_ROUNDS: Final = 12
_MAX_RATIO: Final = 0.95
"""Of times: less is a clear gain"""
_SLICE_WEIGHTS: Final = 1 << 20
"""Weights that a measured product multiplies"""
_MAX_SLICES: Final = 64
_ROWS_TO_COMPARE: Final = 27
"""A whole tile, and a rest that is no multiple of four"""


class TileSupport(IntEnum):
    """``PellucidTileSupport`` in structures.h"""

    USABLE = 0
    ABSENT = 1
    NOT_COMPILED = 2
    NOT_SAVED = 3
    NOT_PERMITTED = 4
    ILLEGAL = 5
    WRONG = 6


REASONS: Final[Mapping[TileSupport, str]] = {
    TileSupport.NOT_COMPILED: "the compiler of the kernels does not support them",
    TileSupport.NOT_SAVED: "the operating system does not enable their registers",
    TileSupport.NOT_PERMITTED: "the operating system refused the permission (arch_prctl)",
    TileSupport.ILLEGAL: "the CPU refused their instructions",
    TileSupport.WRONG: "a trial product was wrong",
}
"""Why tiles that the CPU lists are not used"""


class Multiply(Protocol):
    """``engine_svc.kernels.products.Product``"""

    def __call__(self, linear: Linear, activations: Format, rows: Tensor, *, num_threads: int) -> TimedProduct: ...


def find_tile_support(library: Any) -> TileSupport:
    """Asks the operating system for permission and tries the tiles. Must precede the first product."""
    support = library.pellucid_tile_support
    support.restype = c_int32
    return TileSupport(support())


def smallest_row_count(ratios: Mapping[int, float]) -> int:
    """From how many rows on tiles are clearly faster, at all larger counts too; 0 if never."""
    smallest = 0
    for count in sorted(ratios, reverse=True):
        if ratios[count] > _MAX_RATIO:
            break
        smallest = count
    return smallest


def agree(
    multiply: Multiply, matrices: Sequence[PackedMatrix], activations: Format, *, lanes: int, num_threads: int
) -> bool:
    """Whether a product of a slice has the same bits with tiles and with vectors, as it must."""
    rows = _rows(matrices[0].inputs)[:_ROWS_TO_COMPARE]
    first = _slices(matrices[:1], lanes)[0]
    with_tiles, with_vectors = (
        multiply(_linear(first, tile_rows=tile_rows), activations, rows, num_threads=num_threads).results
        for tile_rows in (1, 0)
    )
    return torch.equal(with_tiles, with_vectors)


def measure_ratios(
    multiply: Multiply,
    matrices: Sequence[PackedMatrix],
    activations: Format,
    *,
    lanes: int,
    num_threads: int,
    clock: Callable[[], float] = time.monotonic,
) -> dict[int, float]:
    """Time with tiles divided by time with vectors, for each of ``ROW_COUNTS``.

    Both alternate, and their minima count, because other programs disturb. ``matrices`` have one shape and are used in
    turn, so that weights come from memory as in a step. Empty if there was no time for three rounds.
    """
    deadline = clock() + MAX_SECONDS
    slices, rows = cycle(_slices(matrices, lanes)), _rows(matrices[0].inputs)
    times: dict[tuple[int, bool], list[float]] = {(count, tiles): [] for count in ROW_COUNTS for tiles in (True, False)}
    for round_ in range(_MAX_ROUNDS):
        if clock() > deadline:
            break
        for count in ROW_COUNTS:
            for tiles in (True, False) if round_ % 2 == 0 else (False, True):
                linear = _linear(next(slices), tile_rows=int(tiles))
                timed = multiply(linear, activations, rows[:count], num_threads=num_threads)
                times[count, tiles].append(timed.seconds)
    if len(times[ROW_COUNTS[0], True]) < _MIN_ROUNDS:
        return {}
    return {count: min(times[count, True]) / min(times[count, False]) for count in ROW_COUNTS}


def _slices(matrices: Sequence[PackedMatrix], lanes: int) -> list[PackedMatrix]:
    """Equal parts of the matrices, of at most ``_SLICE_WEIGHTS`` unless one panel has more."""
    num_panels = len(matrices[0].panels)
    size = min(num_panels, max(1, _SLICE_WEIGHTS // (lanes * matrices[0].inputs)))
    parts = (
        PackedMatrix(matrix.format, size * lanes, matrix.inputs, matrix.panels[first : first + size])
        for matrix in matrices
        for first in range(0, num_panels - size + 1, size)
    )
    return list(islice(parts, _MAX_SLICES))


def _rows(inputs: int) -> Tensor:
    """Rows of which every ninth group has outliers, about as in a language model."""
    rows = torch.randn(max(ROW_COUNTS), inputs, generator=torch.Generator().manual_seed(0))
    rows[:, :: 9 * GROUP_SIZE] *= 10.0
    return rows


def _linear(matrix: PackedMatrix, *, tile_rows: int) -> Linear:
    return Linear((Matrix * 3)(matrix.structure(tile_rows=tile_rows)), 1)
