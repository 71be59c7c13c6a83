"""What every executor is given, and what it offers. Names no model and no device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine_svc.attention.interface import PagedBatch
from engine_svc.executors.cache import CacheLayout
from engine_svc.sampling.logit_rows import LogitRows


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A flat batch on the executor's device: the runs of tokens of all sequences, one after the other."""

    input_ids: Tensor
    """int64 [tokens]"""
    positions: Tensor
    """int64 [tokens]"""
    rows: Tensor
    """Which tokens need logits: first those after which a token is sampled, then prompt rows, int64 [rows]

    A token is sampled after the last known one of a sequence, and after each of its draft tokens.
    """
    num_samples: int
    """Rows after which a token is sampled"""
    paged: PagedBatch


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """What an executor loaded.

    ``dtype`` is what activations are multiplied as. ``batch_invariant`` promises that what is computed for a token is
    the same to the bit whatever else the step computes.
    """

    model_type: str
    """transformers' name of the family"""
    dtype: str
    vocab_size: int
    max_position_embeddings: int
    """Maximum tokens of a sequence"""
    cache: CacheLayout
    batch_invariant: bool = False


class Executor(Protocol):
    """Computes steps: has the weights of a model and owns its KV cache. Belongs to one thread."""

    @property
    def info(self) -> ExecutorInfo:
        """What was loaded; does not change."""

    @property
    def device(self) -> torch.device:
        """Where the tensors of a step must be, and where its logits are."""

    def forward(self, step: PreparedStep) -> LogitRows:
        """Write keys and values of the step's tokens to the KV cache; give the logits of ``step.rows``, in that order.

        Raises ``engine_svc.runners.interface.DeviceLost`` when this process cannot compute any more.
        """


class HiddenStatesExecutor(Executor, Protocol):
    """An executor that can stop below the output matrix, as embedding needs it."""

    def hidden_states(self, step: PreparedStep) -> Tensor:
        """As ``forward``, but what the last layer leaves of ``step.rows``, normed [rows, hidden_size]"""
