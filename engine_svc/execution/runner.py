"""The border between deciding what to compute (scheduling/, no torch) and computing it (executors/, sampling/)."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from engine_svc.request import Sampled
from engine_svc.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """A run of tokens of one sequence to be computed in this step.

    All tokens before ``start`` are in the KV cache already, and ``sequence.block_table`` has room for
    the ``num_tokens`` of the run. When ``samples`` is true the last known token is in it, so the step must choose what
    follows it. The run then goes on with ``drafts``, draft tokens: the step may choose one token more after each draft
    token that it chose itself.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    drafts: tuple[int, ...] = ()

    @property
    def token_ids(self) -> list[int]:
        """The run's tokens, draft tokens included."""
        return [*self.sequence.token_ids[self.start : self._end], *self.drafts]

    @property
    def samples(self) -> bool:
        """Whether the step chooses a next token for this sequence."""
        return self._end == self.sequence.num_tokens

    @property
    def _end(self) -> int:
        """Where the draft tokens begin."""
        return self.start + self.num_tokens - len(self.drafts)

    @property
    def prompt_rows(self) -> range:
        """Positions of the run that tell how likely the prompt's next token was, where that is still owed."""
        sequence = self.sequence
        if not sequence.owes_prompt_logprobs:
            return range(0)
        first = max(self.start, sequence.num_prompt_logprobs)
        return range(first, max(first, min(self.start + self.num_tokens, sequence.num_prompt_tokens - 1)))

    @property
    def has_output(self) -> bool:
        """Whether the step has a result for this sequence."""
        return self.samples or len(self.prompt_rows) > 0


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """What a runner loaded, and its limits.

    ``dtype`` is what activations are multiplied as, ``cache_dtype`` the element type of the KV cache.
    ``batch_invariant`` promises that what is computed for a token is the same to the bit whatever else the step
    computes, so that draft tokens change nothing.
    """

    model_path: str
    model_type: str
    dtype: str
    cache_dtype: str
    vocab_size: int
    max_model_len: int
    num_blocks: int
    eos_token_ids: tuple[int, ...]
    simulated: bool = False
    batch_invariant: bool = False
    kv_cache_bytes: int = 0
    """Memory of the KV cache; 0 where there is none."""


class DeviceLost(Exception):
    """The device cannot compute any more: this process must end. Raised by ``Runner.execute``."""


class Runner(Protocol):
    """Computes one step. Owned and called by the step loop's thread alone."""

    @property
    def info(self) -> RunnerInfo:
        """What was loaded; does not change."""

    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        """Compute a step; one result for each entry that ``has_output``, in order, no tokens unless it ``samples``.

        An exception in the list is the fault of that one sequence. Raising is a fault of the whole step, and
        ``DeviceLost`` one of the process. Does not change the sequences.
        """

    def release(self, sequence: Sequence) -> None:
        """Drop whatever is kept for a sequence that ended; called once for each."""
