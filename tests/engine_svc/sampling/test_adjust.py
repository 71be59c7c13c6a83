from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_svc.request import SamplingParams
from engine_svc.sampling.state import SamplingState
from engine_svc.scheduling.sequence import Sequence
from tests.engine_svc.sampling.given import adjust, logits, sequence, state

pytestmark = pytest.mark.usefixtures("operations")

VOCAB = 12
TOKENS = st.integers(0, VOCAB - 1)


def adjusted(row: list[float], output: list[int] | None = None, **given: Any) -> list[float]:
    values = logits(row)
    adjust(values, [state(output or [], **given)])
    changed: list[float] = values[0].tolist()
    return changed


def naive(row: npt.NDArray[np.float32], sequence: Sequence) -> list[float]:
    """The definition, token by token."""
    params: SamplingParams = sequence.request.sampling_params
    prompt, output = sequence.request.prompt_token_ids, sequence.token_ids[sequence.num_prompt_tokens :]
    values = []
    for token, logit in enumerate(row.astype(float)):
        value = -1e30 if len(output) < params.min_tokens and token in sequence.end_token_ids else logit
        if value > -1e30:
            value += dict(params.logit_bias).get(token, 0.0)
        if token in prompt or token in output:
            value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        value -= params.frequency_penalty * output.count(token)
        value -= params.presence_penalty * (token in output)
        values.append(max(value, -1e30))
    return values


@given(data=st.data())
def test_it_is_the_definition_in_every_row(data: st.DataObject) -> None:
    sequences = [
        sequence(
            data.draw(st.lists(TOKENS, max_size=8)),
            prompt=data.draw(st.lists(TOKENS, min_size=1, max_size=8)),
            eos=data.draw(st.frozensets(TOKENS, max_size=2)),
            ignore_eos=data.draw(st.booleans()),
            stop_token_ids=data.draw(st.frozensets(TOKENS, max_size=2)),
            min_tokens=data.draw(st.sampled_from([0, 0, 3, 20])),
            logit_bias=tuple(data.draw(st.dictionaries(TOKENS, st.floats(-100, 100, width=32), max_size=3)).items()),
            repetition_penalty=data.draw(st.sampled_from([1.0, 1.3, 0.5])),
            presence_penalty=data.draw(st.sampled_from([0.0, 0.5, -2.0])),
            frequency_penalty=data.draw(st.sampled_from([0.0, 0.25, -1.0])),
        )
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    rows = np.random.default_rng(0).normal(size=(len(sequences), VOCAB)).astype(np.float32) * 3
    values = rows.copy()

    adjust(values, [SamplingState(one) for one in sequences])

    expected = [naive(row, one) for row, one in zip(rows, sequences, strict=True)]
    np.testing.assert_allclose(np.maximum(values, np.float32(-1e30)), expected, rtol=1e-5, atol=1e-5)


def test_nothing_asked_nothing_changed() -> None:
    assert adjusted([1.0, -2.0, 0.0], [1, 1], prompt=[0]) == [1.0, -2.0, 0.0]


def test_repetition_weakens_tokens_of_prompt_and_output_alike() -> None:
    assert adjusted([2.0, -2.0, 2.0, 0.0], [1], prompt=[0], repetition_penalty=2.0) == [1.0, -4.0, 2.0, 0.0]


def test_presence_and_frequency_look_at_the_output_alone() -> None:
    given = {"prompt": [0, 0, 3], "presence_penalty": 1.0, "frequency_penalty": 0.5}

    assert adjusted([5.0, 5.0, 5.0, 5.0], [1, 1, 2], **given) == [5.0, 3.0, 3.5, 5.0]


def test_a_token_in_prompt_and_output_is_counted_in_the_output_only() -> None:
    assert adjusted([5.0, 5.0], [0], prompt=[0, 0, 0], frequency_penalty=1.0) == [4.0, 5.0]


@pytest.mark.parametrize(("output", "forbidden"), [([], True), ([3], True), ([3, 3], False), ([3, 3, 3], False)])
def test_nothing_ends_before_min_tokens(output: list[int], forbidden: bool) -> None:
    values = adjusted([1.0, 2.0, 3.0, 4.0], output, min_tokens=2, eos=[0], stop_token_ids=frozenset([2]))

    assert [value < -1e20 for value in values] == [forbidden, False, forbidden, False]


def test_an_ignored_end_of_sequence_token_stays_allowed() -> None:
    values = adjusted([1.0, 2.0, 3.0], min_tokens=2, eos=[0], ignore_eos=True, stop_token_ids=frozenset([2]))

    assert [value < -1e20 for value in values] == [False, False, True]


@pytest.mark.parametrize("bias", [100.0, 3.4e38])
def test_no_bias_makes_a_forbidden_token_possible(bias: float) -> None:
    values = adjusted([1.0, 2.0], min_tokens=1, eos=[0], logit_bias=((0, bias),))

    assert values[0] < -1e20


@pytest.mark.parametrize("bias", [3.4e38, -3.4e38, 1e-45])
@pytest.mark.parametrize("penalty", [0.01, 10.0])
@pytest.mark.filterwarnings("error")
def test_extremes_stay_finite(bias: float, penalty: float) -> None:
    values = adjusted(
        [3.0e38, -3.0e38, -np.inf, 0.0],
        [0, 1, 2, 3],
        logit_bias=((0, bias), (1, bias), (2, bias), (3, bias)),
        repetition_penalty=penalty,
        frequency_penalty=2.0,
    )

    assert np.isfinite(values).all()


def test_tokens_that_came_since_are_counted_and_nothing_twice() -> None:
    kept = state([1], frequency_penalty=1.0)
    first, second, third = logits([9.0, 9.0, 9.0]), logits([9.0, 9.0, 9.0]), logits([9.0, 9.0, 9.0])

    adjust(first, [kept])
    kept.sequence.token_ids += [1, 2]
    adjust(second, [kept])
    adjust(third, [kept])

    assert first.tolist() == [[9.0, 8.0, 9.0]]
    assert second.tolist() == third.tolist() == [[9.0, 7.0, 8.0]]
