from __future__ import annotations

import pytest

from engine_svc.output import Sampled
from engine_svc.scheduling.ending import Ending, ending_of
from engine_svc.scheduling.sequence import Sequence, choices_of
from tests.engine_svc import given

EOS, STOP = given.EOS, 50


def fresh(**params: object) -> Sequence:
    return choices_of(given.request(3, **params), 1)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "new", "expected"),
    [
        ({"max_tokens": 4}, (7,), None),
        ({"max_tokens": 4}, (), None),
        ({"max_tokens": 1}, (7,), Ending(1, "length")),
        ({"max_tokens": 4}, (7, 8, 9, 10), Ending(4, "length")),
        ({"max_tokens": 2}, (7, 8, 9), Ending(2, "length")),
        ({"max_tokens": 4}, (7, EOS, 9), Ending(2, "stop", EOS)),
        ({"max_tokens": 2}, (7, EOS), Ending(2, "stop", EOS)),
        ({"max_tokens": 4, "stop": [STOP]}, (STOP, EOS), Ending(1, "stop", STOP)),
        ({"max_tokens": 4, "ignore_eos": True}, (EOS, EOS), None),
        ({"max_tokens": 4, "ignore_eos": True, "stop": [STOP]}, (EOS, STOP), Ending(2, "stop", STOP)),
        ({"max_tokens": 4, "ignore_eos": True, "stop": [EOS]}, (7, EOS), Ending(2, "stop", EOS)),
        ({"max_tokens": 4, "min_tokens": 2}, (EOS, EOS), None),
        ({"max_tokens": 4, "min_tokens": 2}, (EOS, EOS, EOS), Ending(3, "stop", EOS)),
        ({"max_tokens": 2, "min_tokens": 2}, (EOS, EOS, EOS), Ending(2, "length")),
        ({"max_tokens": 4, "min_tokens": 1, "stop": [STOP]}, (STOP, STOP), Ending(2, "stop", STOP)),
    ],
)
def test_where_new_tokens_end_a_choice(
    params: dict[str, object], new: tuple[int, ...], expected: Ending | None
) -> None:
    assert ending_of(fresh(**params), Sampled(new)) == expected


@pytest.mark.parametrize(
    ("params", "new", "expected"),
    [
        ({"max_tokens": 9}, (7,), Ending(1, "stop")),
        ({"max_tokens": 9}, (), Ending(0, "stop")),
        ({"max_tokens": 1}, (7,), Ending(1, "stop")),
        ({"max_tokens": 1}, (7, 8), Ending(1, "length")),
        ({"max_tokens": 9, "min_tokens": 5}, (7,), Ending(1, "stop")),
        ({"max_tokens": 9, "ignore_eos": True}, (7,), Ending(1, "stop")),
        ({"max_tokens": 9, "stop": [STOP]}, (STOP, 7), Ending(1, "stop", STOP)),
    ],
)
def test_a_fulfilled_constraint_ends_a_choice(
    params: dict[str, object], new: tuple[int, ...], expected: Ending
) -> None:
    assert ending_of(fresh(**params), Sampled(new, completed=True)) == expected


def test_tokens_of_earlier_steps_count() -> None:
    sequence = fresh(max_tokens=4, min_tokens=2)
    sequence.token_ids += [7, 8]
    assert ending_of(sequence, Sampled((EOS,))) == Ending(1, "stop", EOS)
    assert ending_of(sequence, Sampled((9,))) is None
    assert ending_of(sequence, Sampled((9, 9, 9))) == Ending(2, "length")


def test_end_tokens_in_the_prompt_mean_nothing() -> None:
    sequence = choices_of(given.request([EOS, STOP, EOS], 4, stop=[STOP]), 1)[0]
    assert ending_of(sequence, Sampled((7,))) is None


def test_a_runner_can_end_the_choice() -> None:
    assert ending_of(fresh(max_tokens=9), Sampled((), ended=True)) == Ending(0, "length")
    assert ending_of(fresh(max_tokens=9), Sampled((7, 8), ended=True)) == Ending(2, "length")
    assert ending_of(fresh(max_tokens=9), Sampled((EOS, 8), ended=True)) == Ending(1, "stop", EOS)
