from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.sampling.noise import exponentials, position_keys, token_hashes
from tests.engine_svc.sampling.given import assert_drawn_from

WORD = 2**64 - 1


def splitmix64(x: int) -> int:
    """One step, in Python's own integers."""
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def plain_hash(seed: int, choice: int, position: int, token: int) -> int:
    """The whole formula, in Python's own integers."""
    key = 0
    for value in (seed, choice, position):
        key = splitmix64(key ^ value)
    x = token ^ (key & 0xFFFFFFFF)
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    x ^= key >> 32
    x = ((x ^ (x >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return x ^ (x >> 15)


def hashes(seed: int, choice: int, position: int, tokens: range) -> list[int]:
    keys = position_keys([seed], [choice], [position])
    found: list[int] = token_hashes(keys, np.array(tokens)).tolist()
    return found


@given(
    seed=st.integers(0, WORD), choice=st.integers(0, 127), position=st.integers(0, 2**32), token=st.integers(0, 2**31)
)
def test_it_is_the_written_formula(seed: int, choice: int, position: int, token: int) -> None:
    assert hashes(seed, choice, position, range(token, token + 1)) == [plain_hash(seed, choice, position, token)]


def test_splitmix64_is_the_published_one() -> None:
    # The first outputs for the seed 1234567, as in the reference implementation's test vectors.
    state, outputs = 1234567, []
    for _ in range(3):
        outputs.append(splitmix64(state))
        state = (state + 0x9E3779B97F4A7C15) & WORD

    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_rows_are_hashed_each_by_its_own_key() -> None:
    seeds, choices, positions = [5, 5, 5, 6, 2**64 - 1], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]
    keys = position_keys(seeds, choices, positions)

    table = token_hashes(keys[:, None], np.arange(50))

    expected = [
        hashes(seed, choice, position, range(50))
        for seed, choice, position in zip(seeds, choices, positions, strict=True)
    ]
    assert table.tolist() == expected
    assert len({tuple(row) for row in expected}) == 5


def test_no_two_tokens_share_a_hash() -> None:
    assert len(set(hashes(1, 0, 0, range(200_000)))) == 200_000


@pytest.mark.parametrize("varied", ["seed", "choice", "position", "token"])
def test_hashes_are_uniform_along_every_argument(varied: str) -> None:
    count = 20_000
    match varied:
        case "seed":
            found = token_hashes(position_keys(range(count), [0] * count, [0] * count), np.full(count, 7))
        case "choice":
            found = token_hashes(position_keys([3] * count, range(count), [0] * count), np.full(count, 7))
        case "position":
            found = token_hashes(position_keys([3] * count, [0] * count, range(count)), np.full(count, 7))
        case _:
            found = token_hashes(position_keys([3], [0], [7]), np.arange(count))

    assert_drawn_from((found >> np.uint32(24)).tolist(), np.ones(256))
    assert_drawn_from((found & np.uint32(255)).tolist(), np.ones(256))


@pytest.mark.parametrize("step", [1, 2, 256, 2**31])
def test_neighbouring_seeds_and_positions_are_unrelated(step: int) -> None:
    tokens = np.arange(20_000)
    first = exponentials(token_hashes(position_keys([11], [0], [0]), tokens))

    for other in (
        position_keys([11 ^ step], [0], [0]),
        position_keys([11], [step], [0]),
        position_keys([11], [0], [step]),
    ):
        second = exponentials(token_hashes(other, tokens))
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


def test_exponentials_are_finite_and_never_zero() -> None:
    extremes = exponentials(np.array([0, 1, 2**31, 2**32 - 1], np.uint32))

    assert np.isfinite(extremes).all()
    assert (extremes > 0).all()
    assert (np.diff(extremes) > 0).all()


def test_exponentials_have_mean_and_variance_one() -> None:
    values = exponentials(token_hashes(position_keys([1], [0], [0]), np.arange(100_000)))

    assert abs(values.mean() - 1.0) < 0.02
    assert abs(values.var() - 1.0) < 0.05
