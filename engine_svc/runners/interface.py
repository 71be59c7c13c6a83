"""The border between scheduling (no torch) and computing: a runner computes one step at a time.

There are two: ``ModelRunner`` (prepare tensors, run an executor, sample) and ``SimulatedRunner`` (no weights, no
logits).
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from engine_svc.output import Sampled
from engine_svc.scheduling.sequence import Sequence
from engine_svc.scheduling.step import ScheduledSequence


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """The loaded model and its limits.

    ``dtype`` is the format in which activations are multiplied, ``cache_dtype`` the element type of the KV cache.
    ``batch_invariant`` promises that the result for a token is the same to the bit in any batch, so that speculation is
    lossless to the bit.
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
    """The device is lost: the process must end. Raised by ``Runner.execute``."""


class Runner(Protocol):
    """Computes steps. Called by the step loop's thread alone."""

    @property
    def info(self) -> RunnerInfo:
        """What was loaded; does not change."""

    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        """Compute a step; one result for each entry that ``has_output``, in order, without tokens unless it
        ``samples``.

        An exception in the list fails that one sequence. A raised exception fails the whole step, and ``DeviceLost``
        the process. Does not change the sequences.
        """

    def release(self, sequence: Sequence) -> None:
        """Drop the state of a sequence that ended; called once for each."""
