"""Constraint masks in the sampler: their order among other parameters, and the containment of faults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from engine_svc.constraint import Constraint, Mask, Thinking
from engine_svc.output import Sampled
from engine_svc.sampling.sampler import Sampler
from engine_svc.scheduling.sequence import Sequence
from svclib.errors import InvalidRequest
from tests.engine_svc.grammar.given import CLOSE, EOS, choice, compiled, ids, schema, spelled, text_of
from tests.engine_svc.sampling.given import sequence

pytestmark = pytest.mark.usefixtures("operations")

VOCAB = 330
LIKELY = ord("z")
NUMBER = schema({"type": "integer"})


def logits(**likely: float) -> torch.Tensor:
    """One row, in which ``z`` is by far the most probable, followed by these letters."""
    row = torch.zeros(1, VOCAB)
    row[0, LIKELY] = 50.0
    for letter, value in likely.items():
        row[0, ord(letter)] = value
    return row


def one(row: torch.Tensor, of: Sequence, sampler: Sampler | None = None) -> Sampled:
    (result,) = (sampler or Sampler()).sample(row, [of])
    assert isinstance(result, Sampled), result
    return result


def constrained(output: str = "", constraint: Constraint | None = None, **params: Any) -> Sequence:
    grammar = compiled(constraint or choice("ab", "ad"))
    return sequence(spelled(output), grammar=grammar, eos=[EOS], **({"temperature": 0.0, "max_tokens": 99} | params))


def test_only_what_the_mask_allows_is_taken() -> None:
    assert one(logits(b=1.0, d=2.0), constrained("a")).token_ids == (ord("d"),)
    assert one(logits(d=1.0, b=2.0), constrained("a")).token_ids == (ord("b"),)


@pytest.mark.parametrize("params", [{}, {"top_k": 1}, {"top_p": 0.01}, {"min_p": 1.0}, {"top_k": 3, "top_p": 0.5}])
def test_only_what_the_mask_allows_is_drawn(params: dict[str, Any]) -> None:
    row = logits(b=1.0, d=1.0)
    drawn = {one(row, constrained("a", temperature=2.0, seed=seed, **params)).token_ids for seed in range(40)}
    assert drawn <= {(ord("b"),), (ord("d"),)}
    assert len(drawn) == (1 if params.get("top_k") == 1 else 2) or params


def test_log_probabilities_are_of_the_raw_logits() -> None:
    found = one(logits(b=1.0), constrained("a", logprobs=1))
    free = one(logits(b=1.0), sequence(spelled("a"), temperature=0.0, logprobs=1))
    assert found.logprobs[0].top == free.logprobs[0].top
    assert found.logprobs[0].top[0][0] == LIKELY
    assert found.logprobs[0].logprob == pytest.approx(-49.0, abs=1e-3)
    assert found.completed


def test_bias_and_penalties_choose_among_what_is_allowed() -> None:
    row = logits(b=1.0, d=2.0)
    assert one(row, constrained("a", logit_bias=((ord("b"), 5.0),))).token_ids == (ord("b"),)
    assert one(row, constrained("a", prompt=[0, ord("d")], repetition_penalty=9.0)).token_ids == (ord("b"),)
    everything = tuple((n, 100.0) for n in range(VOCAB) if n not in (ord("b"), ord("d")))
    assert one(row, constrained("a", logit_bias=everything)).token_ids == (ord("d"),)
    assert one(row, constrained("a", logit_bias=((ord("b"), -100.0), (ord("d"), -100.0)))).token_ids == (ord("d"),)


def test_impossible_tokens_are_taken_if_no_other_is_allowed() -> None:
    row = torch.full((1, VOCAB), -math.inf)
    row[0, LIKELY] = 0.0
    for temperature in (0.0, 1.0):
        found = one(row, constrained("a", temperature=temperature)).token_ids
        assert found[0] in spelled("bd")


def test_a_choice_that_is_complete_ends_with_its_last_token() -> None:
    assert one(logits(), constrained("a")).completed
    assert not one(logits(), constrained()).completed
    assert one(logits(), constrained("ab")) == Sampled((), completed=True)


def test_an_end_token_is_not_read_as_text() -> None:
    row = logits()
    row[0, EOS] = 40.0
    assert one(row, constrained("1", NUMBER)) == Sampled((EOS,))


@pytest.mark.parametrize("params", [{"min_tokens": 5}, {"ignore_eos": True}])
def test_an_end_that_is_not_wanted_waits(params: dict[str, Any]) -> None:
    row = logits(**{"7": 1.0})
    row[0, EOS] = 40.0
    assert one(row, constrained("1", NUMBER, **params)).token_ids == (ord("7"),)
    assert one(row, constrained("ab", **params)) == Sampled((), completed=True)


def test_thinking_first() -> None:
    grammar = compiled(choice("ab"), thinking=Thinking(True, (), (CLOSE,)))
    row = logits(a=1.0)
    row[0, EOS] = 60.0
    thinking = sequence(spelled("hm"), grammar=grammar, eos=[EOS], temperature=0.0, max_tokens=99)
    behind = sequence(ids("hm", CLOSE), grammar=grammar, eos=[EOS], temperature=0.0, max_tokens=99)
    assert one(row, thinking).token_ids == (LIKELY,)
    assert one(row, behind).token_ids == (ord("a"),)


def test_step_by_step_to_the_end() -> None:
    sampler, running = (
        Sampler(),
        constrained(constraint=schema({"type": "array", "items": {"type": "null"}, "maxItems": 2})),
    )
    for _ in range(99):
        row = torch.from_numpy(np.random.default_rng(len(running.token_ids)).normal(size=(1, VOCAB)).astype(np.float32))
        found = one(row, running, sampler)
        running.token_ids += found.token_ids
        if found.completed:
            break
    assert "".join(text_of(running.token_ids[running.num_prompt_tokens :]).split()) in {"[]", "[null]", "[null,null]"}


class PanicException(BaseException):
    """As pyo3 raises it."""


class Failing:
    """A grammar that fails when making a matcher, or whose matcher fails in ``allowed`` or ``is_over``."""

    def __init__(self, place: str, error: BaseException) -> None:
        self._place, self._error = place, error

    def matcher(self, *_: object) -> Failing:
        return self._fail_at("matcher")

    def allowed(self, *_: object, may_end: bool) -> Mask:
        self._fail_at("allowed")
        return np.ones(VOCAB, np.bool_)

    def is_over(self, _: object) -> bool:
        self._fail_at("is_over")
        return False

    def _fail_at(self, place: str) -> Failing:
        if place == self._place:
            raise self._error
        return self


@pytest.mark.parametrize("place", ["matcher", "allowed", "is_over"])
@pytest.mark.parametrize("error", [InvalidRequest("too complex"), RuntimeError("a bug"), PanicException("a bug")])
def test_a_failing_matcher_fails_its_own_sequence(place: str, error: BaseException) -> None:
    failing = sequence(grammar=Failing(place, error), temperature=0.0)
    first, fault, last = Sampler().sample(
        logits(a=1.0).repeat(3, 1), [constrained(), failing, sequence(temperature=0.0)]
    )
    assert isinstance(fault, Exception)
    assert error in (fault, fault.__cause__)
    assert isinstance(first, Sampled)
    assert isinstance(last, Sampled)
    assert (first.token_ids, last.token_ids) == ((ord("a"),), (LIKELY,))


def test_constrained_rows_are_batch_invariant() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(3, VOCAB)).astype(np.float32))
    batch = [constrained("a", temperature=1.0, seed=4), constrained("1", NUMBER), sequence(seed=1)]
    together = Sampler().sample(rows, batch)
    assert together == [one(row[None], of) for row, of in zip(rows, batch, strict=True)]
