"""Matrix tiles. Most CPUs have none, so a build of the products emulates them, with vectors of 16 lanes as they need.

Where the CPU has them, the same tests run on the real ones too.
"""

from __future__ import annotations

import platform
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from ctypes import CDLL, c_int64
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine_svc.kernels import build as building
from engine_svc.kernels import tiles
from engine_svc.kernels.build import find_compiler, library_path
from engine_svc.kernels.library import Kernels
from engine_svc.kernels.memory import Arena
from engine_svc.kernels.packing import Format, PackedMatrix, pack
from engine_svc.kernels.products import Product, TimedProduct
from engine_svc.kernels.structures import Linear, Matrix
from engine_svc.kernels.tiles import (
    MAX_SECONDS,
    REASONS,
    ROW_COUNTS,
    TileSupport,
    find_tile_support,
    measure_ratios,
    smallest_row_count,
)
from engine_svc.weights.quantized import GROUP_SIZE, QuantizedRows

LANES = 16
SOURCES = Path(building.__file__).parent / "csrc"
EMULATION = Path(__file__).parent / "emulated_tiles.h"


def compile_library(folder: Path, source: str, *flags: str) -> Path:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler found")
    path = folder / f"{source}.so"
    common = ("-std=c++17", "-O0", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC", "-w")
    done = subprocess.run(
        [compiler, *common, *flags, str(SOURCES / source), "-o", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return path


@dataclass(frozen=True)
class Tiles:
    """A library whose products use tiles."""

    multiply: Product
    products: Callable[[], int] | None
    """Tile products so far; None if the library does not count them"""


@pytest.fixture(scope="module", params=["emulated", "real"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiles:
    if request.param == "real":
        kernels: Kernels = request.getfixturevalue("kernels")
        if kernels.tile_support is not TileSupport.USABLE:
            pytest.skip(f"no matrix tiles: {kernels.tile_support.name}")
        return Tiles(kernels.multiply, None)
    path = compile_library(
        tmp_path_factory.mktemp("emulated"),
        "products.cpp",
        f"-DPELLUCID_LANES={LANES}",
        f'-DPELLUCID_TILES_HEADER="{EMULATION}"',
    )
    loaded = CDLL(str(path))
    loaded.emulated_products.restype = c_int64
    return Tiles(Product(loaded), loaded.emulated_products)


def random_weights(bits: int, outputs: int, inputs: int, seed: int) -> QuantizedRows:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 1 << bits, (outputs, inputs), generator=generator, dtype=torch.uint8)
    parameters = torch.randn(2, outputs, inputs // GROUP_SIZE, generator=generator).half()
    return QuantizedRows(bits, values, parameters[0], parameters[1] if bits == 4 else None)


def random_rows(num_rows: int, inputs: int, seed: int, *, outliers: float) -> Tensor:
    """Some groups are far larger than the others of their row, so they are decomposed."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(num_rows, inputs // GROUP_SIZE, GROUP_SIZE, generator=generator)
    large = torch.rand(num_rows, inputs // GROUP_SIZE, 1, generator=generator) < outliers
    return torch.where(large, 50.0 * rows, rows).flatten(1)


def linear(*parts: PackedMatrix, bias: Tensor | None = None, tile_rows: int) -> Linear:
    return Linear((Matrix * 3)(*(part.structure(bias, tile_rows=tile_rows) for part in parts)), len(parts))


def bits_of(x: Tensor) -> Tensor:
    return x.view(torch.int32)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    num_rows=st.one_of(st.integers(4, 33), st.sampled_from([47, 48, 49, 64])),
    groups=st.one_of(st.integers(1, 5), st.sampled_from([66])),
    outputs=st.integers(1, 70),
    bits=st.sampled_from([4, 8]),
    activations=st.sampled_from([Format.INT8, Format.INT16]),
    outliers=st.sampled_from([0.0, 0.05, 0.5]),
    num_threads=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_tiles_give_the_bits_of_vectors(
    library: Tiles,
    num_rows: int,
    groups: int,
    outputs: int,
    bits: int,
    activations: Format,
    outliers: float,
    num_threads: int,
    seed: int,
) -> None:
    inputs = groups * GROUP_SIZE
    packed = pack(random_weights(bits, outputs, inputs, seed), LANES, Arena())
    rows = random_rows(num_rows, inputs, seed, outliers=outliers)
    bias = torch.randn(outputs, generator=torch.Generator().manual_seed(seed))

    by_vectors, by_tiles = (
        library.multiply(linear(packed, bias=bias, tile_rows=border), activations, rows, num_threads=num_threads)
        for border in (0, 1)
    )

    assert torch.equal(bits_of(by_tiles.results), bits_of(by_vectors.results))


@pytest.mark.parametrize("num_rows", [16, 21])
def test_extremes_give_the_bits_of_vectors(library: Tiles, num_rows: int) -> None:
    rows = random_rows(num_rows, 4 * GROUP_SIZE, 1, outliers=0.2)
    rows[0] = 0.0
    rows[1] *= 1e-35
    rows[2] *= 1e30
    rows[3, 40] = torch.inf
    rows[4, 0] = torch.nan
    rows[num_rows - 1] = 127.0
    weights = random_weights(8, 20, 4 * GROUP_SIZE, 1)
    weights.values[0], weights.values[1] = 0, 255
    packed = pack(weights, LANES, Arena())

    by_vectors, by_tiles = (
        library.multiply(linear(packed, tile_rows=border), Format.INT8, rows, num_threads=1).results
        for border in (0, 1)
    )

    finite = by_vectors.isfinite()
    assert finite.any(dim=1).tolist() == [i not in (3, 4) for i in range(num_rows)]
    assert torch.equal(bits_of(by_tiles)[finite], bits_of(by_vectors)[finite])
    assert torch.equal(by_tiles.isnan(), by_vectors.isnan())


@pytest.mark.parametrize("bits", [4, 8])
def test_products_are_near_those_of_floats(library: Tiles, bits: int) -> None:
    weights = random_weights(bits, 40, 96, 3)
    rows = random_rows(19, 96, 3, outliers=0.2)
    values = weights.values.float().unflatten(1, (-1, GROUP_SIZE)) - (128.0 if bits == 8 else 0.0)
    floats = values * weights.scales[..., None].float()
    floats += 0.0 if weights.minima is None else weights.minima[..., None].float()

    packed = pack(weights, LANES, Arena())
    got = library.multiply(linear(packed, tile_rows=1), Format.INT16, rows, num_threads=1).results

    expected = rows @ floats.flatten(1).T
    assert (got - expected).abs().max() < 1e-3 * expected.abs().max()


@pytest.mark.parametrize(
    ("num_rows", "border", "used"), [(16, 16, True), (15, 16, False), (16, 0, False), (3, 1, False)]
)
def test_tiles_are_used_from_the_border_on(library: Tiles, num_rows: int, border: int, used: bool) -> None:
    if library.products is None:
        pytest.skip("the library does not count tile products")
    packed = pack(random_weights(8, 33, 64, 1), LANES, Arena())
    before = library.products()

    library.multiply(linear(packed, tile_rows=border), Format.INT8, torch.zeros(num_rows, 64), num_threads=1)

    groups, panels = 2, 3
    assert library.products() - before == (groups * panels if used else 0)


def test_low_parts_are_multiplied_only_where_a_row_has_them(library: Tiles) -> None:
    if library.products is None:
        pytest.skip("the library does not count tile products")
    packed = pack(random_weights(8, 16, 96, 1), LANES, Arena())
    rows = torch.ones(32, 96)
    rows[20, 32:64] *= 100.0
    before = library.products()

    library.multiply(linear(packed, tile_rows=1), Format.INT8, rows, num_threads=1)

    assert library.products() - before == 2 * 3 + 1


def test_several_matrices_of_a_layer_share_the_rows(library: Tiles) -> None:
    parts = [
        pack(random_weights(bits, outputs, 64, bits), LANES, Arena()) for bits, outputs in ((8, 50), (4, 16), (8, 7))
    ]
    rows = random_rows(37, 64, 1, outliers=0.3)

    together = library.multiply(linear(*parts, tile_rows=16), Format.INT8, rows, num_threads=2).results

    alone = [library.multiply(linear(part, tile_rows=0), Format.INT8, rows, num_threads=1).results for part in parts]
    assert torch.equal(together, torch.cat(alone, dim=1))


def cpu_lists_tiles() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and "amx_int8" in cpuinfo.read_text()


def test_illegal_instructions_are_survived(tmp_path: Path) -> None:
    if cpu_lists_tiles() or platform.machine() != "x86_64":
        pytest.skip("needs an x86-64 CPU without matrix tiles")
    library = CDLL(str(compile_library(tmp_path, "tiles.cpp", "-mamx-tile", "-mamx-int8", f"-DPELLUCID_LANES={LANES}")))
    handled: list[int] = []
    previous = signal.signal(signal.SIGILL, lambda number, _: handled.append(number))
    try:
        assert library.pellucid_try_tiles() == TileSupport.ILLEGAL
        assert library.pellucid_try_tiles() == TileSupport.ILLEGAL, "the handler works again"
        signal.raise_signal(signal.SIGILL)
    finally:
        signal.signal(signal.SIGILL, previous)

    assert handled == [signal.SIGILL], "the process's own handler is back"


def test_a_cpu_that_lists_no_tiles_has_none(kernels: Kernels) -> None:
    assert (kernels.tile_support is TileSupport.ABSENT) == (not cpu_lists_tiles())


def test_the_header_has_the_same_kinds_of_support() -> None:
    (body,) = re.findall(
        r"enum PellucidTileSupport : int32_t {(.*?)};", (SOURCES / "structures.h").read_text(), re.DOTALL
    )
    names = dict(re.findall(r"kTiles(\w+) = (\d+)", body))

    assert {name.upper(): int(value) for name, value in names.items()} == {
        support.name.replace("_", ""): support for support in TileSupport
    }
    assert {*REASONS, TileSupport.USABLE, TileSupport.ABSENT} == {*TileSupport}


class FakeFunction:
    """A ctypes function."""

    restype: Any = None

    def __init__(self, result: int) -> None:
        self._result = result

    def __call__(self) -> int:
        return self._result


@pytest.mark.parametrize("support", TileSupport)
def test_the_support_is_that_of_the_library(support: TileSupport) -> None:
    library = SimpleNamespace(pellucid_tile_support=FakeFunction(support))

    assert find_tile_support(library) is support


@pytest.mark.parametrize(
    ("ratios", "smallest"),
    [
        ({8: 0.5, 16: 0.5}, 8),
        ({8: 1.2, 16: 0.95, 32: 0.7}, 16),
        ({8: 0.8, 16: 0.96, 32: 0.7}, 32),
        ({8: 0.5, 16: 0.96}, 0),
        ({16: 0.5, 8: 1.0}, 16),
        ({}, 0),
    ],
)
def test_the_border_is_where_tiles_begin_to_win_clearly(ratios: dict[int, float], smallest: int) -> None:
    assert smallest_row_count(ratios) == smallest


class FakeMultiply:
    """Takes the given seconds; the first products take longer."""

    def __init__(self, tiles: float, vectors: float) -> None:
        self.seconds = {True: tiles, False: vectors}
        self.calls: list[tuple[Matrix, int]] = []

    def __call__(self, linear: Linear, activations: Format, rows: Tensor, *, num_threads: int) -> TimedProduct:
        matrix = linear.parts[0]
        self.calls.append((matrix, len(rows)))
        slowed = 10.0 if len(self.calls) < 20 else 1.0
        return TimedProduct(torch.empty(0), slowed * self.seconds[matrix.tile_rows > 0])


def ticking(step: float) -> Callable[[], float]:
    times: Iterator[float] = count(0.0, step)
    return lambda: next(times)


def measure(multiply: FakeMultiply, *matrices: PackedMatrix, step: float = 0.0) -> dict[int, float]:
    return measure_ratios(
        multiply, matrices, Format.INT8, lanes=LANES, num_threads=1, clock=ticking(step)
    )  # fmt: skip


@pytest.fixture
def packed() -> PackedMatrix:
    return pack(random_weights(8, 100, 64, 1), LANES, Arena())


def test_ratios_are_those_of_the_shortest_times(packed: PackedMatrix) -> None:
    multiply = FakeMultiply(tiles=1.0, vectors=2.0)

    assert measure(multiply, packed) == dict.fromkeys(ROW_COUNTS, 0.5)
    assert {rows for _, rows in multiply.calls} == set(ROW_COUNTS)


def test_no_rounds_begin_after_the_time_is_up(packed: PackedMatrix) -> None:
    multiply = FakeMultiply(tiles=1.0, vectors=2.0)

    assert measure(multiply, packed, step=MAX_SECONDS / 4) == dict.fromkeys(ROW_COUNTS, 0.5)
    assert len(multiply.calls) == 4 * 2 * len(ROW_COUNTS)


def test_too_few_rounds_are_no_measurement(packed: PackedMatrix) -> None:
    assert measure(FakeMultiply(tiles=1.0, vectors=2.0), packed, step=MAX_SECONDS) == {}


def test_slices_of_all_matrices_are_multiplied_in_turn(packed: PackedMatrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_SLICE_WEIGHTS", 3 * LANES * 64)
    other = pack(random_weights(8, 100, 64, 2), LANES, Arena())
    multiply = FakeMultiply(tiles=1.0, vectors=2.0)

    measure(multiply, packed, other)

    addresses = [matrix.panels for matrix, _ in multiply.calls[:5]]
    panel_bytes = packed.panels.shape[1]
    starts = [matrix.panels.data_ptr() + first * panel_bytes for matrix in (packed, other) for first in (0, 3)]
    assert addresses == [*starts, starts[0]]
    assert {matrix.outputs for matrix, _ in multiply.calls} == {3 * LANES}


def test_real_tiles_are_measured(kernels: Kernels) -> None:
    if kernels.tile_support is not TileSupport.USABLE:
        pytest.skip(f"no matrix tiles: {kernels.tile_support.name}")
    matrices = [pack(random_weights(8, 1024, 512, 1), kernels.lanes, Arena())]

    ratios = measure_ratios(kernels.multiply, matrices, Format.INT8, lanes=kernels.lanes, num_threads=1)

    assert set(ratios) <= set(ROW_COUNTS)


def test_vectors_multiply_on_any_cpu(kernels: Kernels) -> None:
    packed = pack(random_weights(8, 100, 64, 1), kernels.lanes, Arena())
    rows = random_rows(5, 64, 1, outliers=0.2)

    timed = kernels.multiply(linear(packed, tile_rows=1), Format.INT8, rows, num_threads=2)

    assert timed.results.shape == (5, 100)
    assert timed.seconds > 0
    alone = kernels.multiply(linear(packed, tile_rows=0), Format.INT8, rows[2:3].contiguous(), num_threads=1)
    assert torch.equal(timed.results[2:3], alone.results)
    assert library_path().exists()
