"""How much of a prompt fits into a step without delaying the streams that wait for their next token in it.

Without such a stream there is no bound. With one, a step may take ``max_seconds``, or by default ``AUTO_MULTIPLE``
times what it would take without a prompt. Prefill gets what the decode tokens leave of that, but at least
``min_tokens`` per step, so that prompts progress whatever the bound is.

The multiple: streams are at most that many times slower while a prompt is computed, and the prompt takes about
``m / (m - 1)`` times as long as alone, so 5 costs it a quarter. It holds on fast and slow machines alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine_svc.scheduling.sequence import Sequence
from engine_svc.scheduling.step import ScheduledSequence
from engine_svc.scheduling.step_cost import StepCost, StepLoad, load_of

AUTO_MULTIPLE: Final = 5.0


class Room:
    """What is left of the time of one step. This one is without a bound; ``BoundRoom`` has one.

    ``share`` is the part of the whole room that one prompt may have.
    """

    def __init__(self, share: float) -> None:
        self.share = share

    def tokens(self, start: int, num_tokens: int) -> int:  # noqa: ARG002
        """How many of the next ``num_tokens`` tokens of a prompt to compute."""
        return num_tokens

    @property
    def is_open(self) -> bool:
        """Whether there is room to start another prompt."""
        return True

    def take(self, start: int, num_tokens: int) -> None:
        """Compute a chunk of a prompt in the step."""

    def num_drafts(self) -> int | None:
        """How many draft tokens still fit; None: any number."""
        return None


class BoundRoom(Room):
    """The room in a step that takes at most ``seconds``. ``load`` is what it computes so far, the decode tokens."""

    def __init__(self, share: float, cost: StepCost, load: StepLoad, seconds: float, min_tokens: int) -> None:
        super().__init__(share)
        self._cost = cost
        self._load = load
        self._seconds = seconds
        self._min_tokens = min_tokens
        # The cost of far more tokens than ever before is a guess: grow step by step.
        self._max_tokens = max(min_tokens, 2 * cost.max_prefill_tokens)
        self._whole = self._left

    @property
    def _left(self) -> float:
        return self._seconds - self._cost.seconds(self._load)

    def tokens(self, start: int, num_tokens: int) -> int:
        fitting = self._cost.prefill_tokens_within(min(self._left, self.share * self._whole), start)
        fitting = min(fitting, self._max_tokens - self._load.prefill_tokens)
        return min(num_tokens, max(fitting, 0 if self._load.prefill_tokens else self._min_tokens))

    @property
    def is_open(self) -> bool:
        return self.tokens(0, self._min_tokens) == self._min_tokens

    def take(self, start: int, num_tokens: int) -> None:
        self._load = self._load.with_prefill(start, num_tokens)

    def num_drafts(self) -> int | None:
        context = self._load.decode_context / max(1, self._load.decode_tokens)
        return self._cost.decode_tokens_within(self._left, context)


class Pace:
    """Bounds the time of steps, and learns from each how long the next one takes."""

    def __init__(self, max_seconds: float | None, min_tokens: int) -> None:
        self.max_seconds = max_seconds
        self._min_tokens = min_tokens
        self._cost = StepCost()

    def room(self, decoding: Iterable[Sequence], share: float) -> Room:
        """The room in a step that computes one token of each of these sequences."""
        contexts = [sequence.num_tokens for sequence in decoding]
        if not contexts:
            return Room(share)
        load = StepLoad(len(contexts), sum(contexts))
        seconds = self.max_seconds or AUTO_MULTIPLE * self._cost.seconds(load)
        return BoundRoom(share, self._cost, load, seconds, self._min_tokens)

    def learn(self, batch: Iterable[ScheduledSequence], seconds: float) -> None:
        """A step with this batch took this long."""
        self._cost.learn(load_of(batch), seconds)
