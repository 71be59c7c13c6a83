"""The interface of executors: a prepared step in, logits out. Independent of models and devices."""

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
    """A flat batch on the executor's device: the scheduled tokens of all sequences, one after the other."""

    input_ids: Tensor
    """int64 [tokens]"""
    positions: Tensor
    """int64 [tokens]"""
    rows: Tensor
    """Which tokens need logits: first those to sample after, then prompt rows, int64 [rows]

    A token is sampled after the last known token of a sequence, and after each of its draft tokens.
    """
    num_samples: int
    """Number of rows to sample after"""
    paged: PagedBatch


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """What an executor loaded.

    ``dtype`` is the format in which activations are multiplied. ``batch_invariant`` promises that the result for a
    token is the same to the bit in any batch.
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
    """Computes the logits of steps: owns the weights of a model and its KV cache. Called by one thread."""

    @property
    def info(self) -> ExecutorInfo:
        """What was loaded; does not change."""

    @property
    def device(self) -> torch.device:
        """The device of a step's tensors and of its logits."""

    def forward(self, step: PreparedStep) -> LogitRows:
        """Write the KV cache of the step's tokens; return the logits of ``step.rows``, in that order.

        Raises ``engine_svc.runners.interface.DeviceLost`` when the device is lost.
        """


class HiddenStatesExecutor(Executor, Protocol):
    """An executor that also returns hidden states, for embedding."""

    def hidden_states(self, step: PreparedStep) -> Tensor:
        """As ``forward``, but the hidden states of ``step.rows`` after the final norm, [rows, hidden_size]"""
