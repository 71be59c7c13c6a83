"""The border between deciding what to compute (scheduling/, no torch) and computing it (executors/, sampling/)."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from engine_svc.output import Sampled
from engine_svc.scheduling.sequence import Sequence
from engine_svc.scheduling.step import ScheduledSequence


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
