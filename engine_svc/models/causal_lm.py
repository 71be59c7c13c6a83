"""What a step asks of a model, whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine_svc.attention.interface import AttentionConfig, AttentionStep


class CausalLM(Protocol):
    """A causal language model over a paged cache."""

    @property
    def dtype(self) -> torch.dtype:
        """Element type of weights and cache."""

    @property
    def attention_config(self) -> AttentionConfig:
        """What it needs of the attention backend that it is given; does not change."""

    def __call__(self, input_ids: Tensor, positions: Tensor, attention: AttentionStep, rows: Tensor) -> Tensor:
        """What the last layer leaves of the tokens at ``rows``, ready for ``logits``.

        ``input_ids`` and ``positions`` int64 [tokens], ``rows`` int64 [rows] -> [rows, hidden]
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, vocab_size]. Apart, so that nobody has to hold those of many rows at once."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its weights, and what the engine must know of it."""

    model: CausalLM
    model_type: str
    """transformers' name of the family"""
    vocab_size: int
    max_position_embeddings: int
    """Most tokens of a sequence"""
    rows_are_independent: bool = False
    """As in ``engine_svc.execution.runner.RunnerInfo``"""
