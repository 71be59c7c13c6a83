from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine_svc.sampling.noise import exponentials, position_keys, token_hashes
from engine_svc.sampling.state import SamplingState
from tests.engine_svc.sampling.given import assert_drawn_from, draw, state

pytestmark = pytest.mark.usefixtures("operations")

DRAWS = 2000


def drawn(logits: list[float], count: int = DRAWS, **params: Any) -> list[int]:
    """Tokens drawn for this row with as many different seeds."""
    states = [state(seed=seed, **params) for seed in range(count)]
    token_ids: list[int] = draw(np.tile(np.array(logits, np.float32), (count, 1)), states).tolist()
    return token_ids


LOGITS = [1.0, 5.0, 2.0, 4.5, 4.0]
WEIGHTS = np.exp(LOGITS)


def test_tokens_come_with_their_probabilities() -> None:
    assert_drawn_from(drawn([0.0, 1.0, 2.0, 0.5, 1.5]), np.exp([0.0, 1.0, 2.0, 0.5, 1.5]))


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_divides_the_logits(temperature: float) -> None:
    logits = [0.0, 1.0, 2.0]

    assert_drawn_from(drawn(logits, temperature=temperature), np.exp(np.array(logits) / temperature))


@pytest.mark.parametrize(
    ("params", "left"),
    [
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 3}, [1, 3, 4]),
        ({"top_p": 0.7}, [1, 3]),
        ({"min_p": 0.5}, [1, 3]),
        ({"min_p": 0.3, "top_k": 4}, [1, 3, 4]),
    ],
)
def test_what_survives_the_filters_comes_with_its_share(params: dict[str, Any], left: list[int]) -> None:
    weights = np.zeros(5)
    weights[left] = WEIGHTS[left]

    assert_drawn_from(drawn(LOGITS, **params), weights)


@pytest.mark.parametrize("top_k", [0, -1, 3, 1000])
def test_all_ways_to_disable_a_filter_are_equal(top_k: int) -> None:
    logits = [1.0, 5.0, 2.0]

    assert drawn(logits, top_k=top_k) == drawn(logits)
    assert_drawn_from(drawn([1.0, 2.0, 1.5], top_k=top_k), np.exp([1.0, 2.0, 1.5]))


def test_a_large_vocabulary_is_sampled_in_proportion() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=3000).astype(np.float32)
    positions = [state([0] * position, seed=9) for position in range(DRAWS)]

    token_ids = draw(np.tile(logits, (DRAWS, 1)), positions)

    # In eight groups of tokens, by rank.
    groups = np.argsort(np.argsort(-logits)) * 8 // 3000
    assert_drawn_from(groups[token_ids].tolist(), np.bincount(groups, weights=np.exp(logits)))


def plain_race(logits: np.ndarray[tuple[int, int], np.dtype[np.float32]], states: list[SamplingState]) -> list[int]:
    """The race between all tokens, in float64."""
    keys = position_keys(
        [s.params.seed for s in states],
        [s.sequence.index for s in states],
        [s.sequence.num_output_tokens for s in states],
    )
    noise = exponentials(token_hashes(keys[:, None], np.arange(logits.shape[1])))
    with np.errstate(over="ignore", divide="ignore"):
        times = noise / np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True).astype(np.float64))
    winners: list[int] = times.argmin(axis=-1).tolist()
    return winners


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 10.0, 100.0])
def test_contenders_include_every_winner(spread: float) -> None:
    generator = np.random.default_rng(1)
    logits = (generator.normal(size=(200, 500)) * spread).astype(np.float32)
    states = [state(seed=int(seed)) for seed in generator.integers(0, 2**63, 200)]

    assert draw(logits.copy(), states).tolist() == plain_race(logits, states)


def test_filters_that_keep_everything_change_no_race() -> None:
    generator = np.random.default_rng(2)
    logits = generator.normal(size=(100, 500)).astype(np.float32)
    unfiltered = [state(seed=seed) for seed in range(100)]
    filtered = [state(seed=seed, min_p=1e-30) for seed in range(100)]

    assert draw(logits.copy(), unfiltered).tolist() == draw(logits.copy(), filtered).tolist()


def test_a_row_draws_the_same_in_any_batch() -> None:
    generator = np.random.default_rng(3)
    logits = generator.normal(size=(64, 1000)).astype(np.float32) * 2
    options: list[dict[str, Any]] = [
        {},
        {"top_p": 0.8},
        {"top_k": 40},
        {"min_p": 0.05},
        {"temperature": 0.3},
        {"top_k": 600},
    ]
    states = [state([1] * (row % 5), seed=row // 2, index=row % 2, **options[row % 6]) for row in range(64)]
    alone = [int(draw(logits[row : row + 1].copy(), [states[row]])[0]) for row in range(64)]

    for order in (np.arange(64), np.arange(64)[::-1], generator.permutation(64), generator.permutation(64)[:17]):
        assert draw(logits[order], [states[row] for row in order]).tolist() == [alone[row] for row in order]


def test_choices_and_positions_draw_independently() -> None:
    flat = np.zeros((400, 50), np.float32)

    by_choice = draw(flat.copy(), [state(seed=1, index=index) for index in range(400)])
    by_position = draw(flat.copy(), [state([0] * position, seed=1) for position in range(400)])

    assert_drawn_from(by_choice.tolist(), np.ones(50))
    assert_drawn_from(by_position.tolist(), np.ones(50))
    assert 2 <= (by_choice == by_position).sum() <= 25, "equal about once in fifty, as chance would have it"


@pytest.mark.parametrize("params", [{}, {"top_p": 0.5}, {"top_k": 2}, {"min_p": 0.1}])
@pytest.mark.parametrize(
    ("logits", "possible"),
    [
        ([-np.inf, 2.0, -np.inf], {1}),
        ([-np.inf, -np.inf, -np.inf], {0}),
        ([3e38, -3e38, 0.0], {0}),
        ([-3e38, -3e38, 3e38], {2}),
        ([1e-40, 0.0, -1e30], {0, 1}),
    ],
)
@pytest.mark.filterwarnings("error")
def test_extreme_logits(logits: list[float], possible: set[int], params: dict[str, Any]) -> None:
    assert set(drawn(logits, 100, **params)) <= possible


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 1e-300, 5e-324])
@pytest.mark.parametrize("params", [{}, {"top_p": 0.5}, {"top_k": 2}, {"min_p": 0.1}])
@pytest.mark.filterwarnings("error")
def test_a_tiny_temperature_takes_the_best_token(temperature: float, params: dict[str, Any]) -> None:
    assert set(drawn([1.0, 1.001, -5.0], 50, temperature=temperature, **params)) == {1}


def test_a_tiny_temperature_still_draws_between_equals() -> None:
    assert_drawn_from(drawn([3.0, 1.0, 3.0], 500, temperature=1e-6), [1, 0, 1])
