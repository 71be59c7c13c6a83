"""How long a step will take: learned from the steps done, for any model on any machine.

The model is linear: a fixed time (reading the weights), a time per decode token and per token of its context, a time
per prefill token and per pair of a prefill token and a position that it attends to. Attention makes a chunk at position
3,800 cost several times as much as one at 0.

The five times are fitted by least squares of the relative error, and none is negative. Recent steps count more. Steps
are forgotten by kind (decode only, prefill only, mixed): an hour of decoding does not erase what a prompt costs. A step
that took far longer than expected counts as a few times as long at most, so one hiccup of the machine changes little,
and a machine that really became slower is followed within some steps.

Reads no clock: whoever calls knows how long a step took.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine_svc.scheduling.step import ScheduledSequence

_SCALES: Final = (1.0, 8.0, 4096.0, 64.0, 65_536.0)
"""What counts as much as the fixed time while there is too little to tell them apart."""

_MEMORY: Final = 0.97
"""Weight of all earlier steps of a kind for each new one: about the last thirty count."""

_RIDGE: Final = 1e-6
_MAX_SURPRISE: Final = 2.0
_MIN_STEPS: Final = 5
"""After so many steps of a kind the estimate is good enough to recognise a hiccup."""

_SHORTEST: Final = 1e-6
_LONGEST: Final = 1e3
"""Times beyond these count as these, so that sums of their squares can be solved."""

_SINGULAR: Final = 1e-12
_FIT_EVERY: Final = 8
"""A fit takes a tenth of a millisecond, so steps that only decode share one."""

_Vector: TypeAlias = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step computes. Draft tokens are decode tokens. ``decode_context`` and ``prefill_pairs`` are sums over the
    tokens of the positions that each attends to."""

    decode_tokens: int = 0
    decode_context: int = 0
    prefill_tokens: int = 0
    prefill_pairs: int = 0

    def with_prefill(self, start: int, num_tokens: int) -> StepLoad:
        """The same with a chunk of a prompt."""
        pairs = self.prefill_pairs + _num_pairs(start, num_tokens)
        return StepLoad(self.decode_tokens, self.decode_context, self.prefill_tokens + num_tokens, pairs)


def load_of(batch: Iterable[ScheduledSequence]) -> StepLoad:
    """What a batch computes, the same before and after its results are applied. One token is a decode token."""
    decode_tokens = decode_context = prefill_tokens = prefill_pairs = 0
    for entry in batch:
        num_tokens = entry.num_tokens
        pairs = _num_pairs(entry.start, num_tokens)
        if num_tokens - len(entry.drafts) == 1:
            decode_tokens += num_tokens
            decode_context += pairs
        else:
            prefill_tokens += num_tokens
            prefill_pairs += pairs
    return StepLoad(decode_tokens, decode_context, prefill_tokens, prefill_pairs)


class StepCost:
    """Estimates the time of a step. All times are in seconds; before the first step all are 0."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[bool, bool], _Sums] = {}
        self._times = [0.0] * len(_SCALES)
        self._max_prefill_tokens = 0

    @property
    def max_prefill_tokens(self) -> int:
        """Prefill tokens of the largest step so far, up to which the estimate is more than a guess."""
        return self._max_prefill_tokens

    def learn(self, load: StepLoad, seconds: float) -> None:
        """A step with this load took this long. A time that no clock should give, 0 or infinite, is ignored."""
        if not 0.0 < seconds < math.inf:
            return
        seconds = min(max(seconds, _SHORTEST), _LONGEST)
        self._max_prefill_tokens = max(self._max_prefill_tokens, load.prefill_tokens)
        kind = (load.decode_tokens > 0, load.prefill_tokens > 0)
        sums = self._kinds.setdefault(kind, _Sums())
        sums.add(_scaled(load), seconds, self.seconds(load))
        if load.prefill_tokens or sums.num_steps < _MIN_STEPS or sums.num_steps % _FIT_EVERY == 0:
            self._fit()

    def seconds(self, load: StepLoad) -> float:
        """Estimated time of a step."""
        return sum(time * amount for time, amount in zip(self._times, _scaled(load), strict=True))

    def prefill_tokens_within(self, seconds: float, start: int) -> int:
        """How many more tokens of a prompt, from position ``start`` on, add at most this time to a step."""
        # n tokens at start take n * linear + n^2 * square; the root is written so that it is exact where square is 0.
        linear = self._times[3] / _SCALES[3] + (start + 0.5) * self._times[4] / _SCALES[4]
        square = 0.5 * self._times[4] / _SCALES[4]
        return _whole(2.0 * seconds, linear + math.sqrt(linear * linear + 4.0 * square * max(0.0, seconds)))

    def decode_tokens_within(self, seconds: float, context: float) -> int:
        """How many more decode tokens, each with this context, add at most this time to a step."""
        return _whole(seconds, self._times[1] / _SCALES[1] + context * self._times[2] / _SCALES[2])

    def _fit(self) -> None:
        """Least squares without negative times: those that would be negative are 0, and the others fitted again."""
        products, targets = self._equations()
        free = [row for row in range(len(_SCALES)) if products[row][row] > 0.0]
        while True:
            times = _solve(products, targets, free)
            positive = [row for row in free if times[row] > 0.0]
            if len(positive) == len(free):
                break
            free = positive
        self._times = times

    def _equations(self) -> tuple[list[list[float]], list[float]]:
        """The normal equations over the steps of all kinds, with a ridge, so that they have one solution.

        A kind has no say in the ridge of an amount that its steps have none of.
        """
        kinds = list(self._kinds.values())
        size = range(len(_SCALES))
        products = [[sum(sums.products[row][column] for sums in kinds) for column in size] for row in size]
        for row in size:
            products[row][row] += _RIDGE * sum(sums.weight for sums in kinds if sums.products[row][row] > 0.0)
        return products, [sum(sums.targets[row] for sums in kinds) for row in size]


class _Sums:
    """The normal equations of weighted least squares, over the steps of one kind."""

    def __init__(self) -> None:
        size = len(_SCALES)
        self.products = [[0.0] * size for _ in range(size)]
        self.targets = [0.0] * size
        self.weight = 0.0
        self.num_steps = 0

    def add(self, amounts: _Vector, seconds: float, expected: float) -> None:
        # A step that took far longer than expected, or that nothing was known about, must not outweigh the others.
        weight = max(seconds, expected) ** -2
        if self.num_steps >= _MIN_STEPS and expected > 0.0:
            seconds = min(max(seconds, expected / _MAX_SURPRISE), expected * _MAX_SURPRISE)
        self.num_steps += 1
        self.weight = _MEMORY * self.weight + weight
        for row, amount in enumerate(amounts):
            factor = weight * amount
            self.targets[row] = _MEMORY * self.targets[row] + factor * seconds
            self.products[row] = [
                _MEMORY * old + factor * other for old, other in zip(self.products[row], amounts, strict=True)
            ]


def _solve(products: list[list[float]], targets: list[float], free: list[int]) -> list[float]:
    """Solve the equations of the ``free`` rows by elimination; 0 for the others, and for those that rounding makes
    singular."""
    rows = {row: [products[row][column] for column in free] + [targets[row]] for row in free}
    for number, row in enumerate(free):
        pivot = rows[row]
        if pivot[number] <= _SINGULAR * products[row][row]:
            rows[row] = pivot = [float(column == number) for column in range(len(free) + 1)]
        for other in free[number + 1 :]:
            factor = rows[other][number] / pivot[number]
            rows[other] = [value - factor * above for value, above in zip(rows[other], pivot, strict=True)]
    solution = [0.0] * len(targets)
    for number, row in reversed(list(enumerate(free))):
        *factors, target = rows[row]
        known = sum(factors[later] * solution[free[later]] for later in range(number + 1, len(free)))
        solution[row] = (target - known) / factors[number]
    return solution


def _scaled(load: StepLoad) -> _Vector:
    amounts = (1, load.decode_tokens, load.decode_context, load.prefill_tokens, load.prefill_pairs)
    return tuple(amount / scale for amount, scale in zip(amounts, _SCALES, strict=True))


def _num_pairs(start: int, num_tokens: int) -> int:
    return num_tokens * start + num_tokens * (num_tokens + 1) // 2


_UNLIMITED: Final = 1 << 40


def _whole(amount: float, per_token: float) -> int:
    """``amount / per_token`` rounded down, at least 0; a large number where a token costs nothing."""
    if amount <= 0.0:
        return 0
    return min(_UNLIMITED, int(amount / per_token)) if per_token > 0.0 else _UNLIMITED
