"""A transformers model over a paged KV cache."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine_svc.attention.interface import AttentionConfig, AttentionStep
from engine_svc.executors.transformers.attention import attending


class PagedModel(Protocol):
    """A causal language model that is called with an attention step."""

    @property
    def dtype(self) -> torch.dtype:
        """Element type of weights and KV cache."""

    @property
    def attention_config(self) -> AttentionConfig:
        """The configuration of its attention backend; does not change."""

    def __call__(self, input_ids: Tensor, positions: Tensor, attention: AttentionStep, rows: Tensor) -> Tensor:
        """``input_ids`` and ``positions`` int64 [tokens], ``rows`` int64 [rows] -> logits [rows, vocab_size]"""


class TransformersModel:
    """See ``PagedModel``. The logits of all rows of a step are computed at once, which takes more memory than with
    other executors: the code after the last layer differs between transformers models and cannot be called alone.
    """

    def __init__(self, model: PreTrainedModel, attention_config: AttentionConfig) -> None:
        """``model`` has the ``attn_implementation`` ``engine_svc.executors.transformers.attention.PAGED``."""
        self.model = model
        self.attention_config = attention_config
        self.dtype: torch.dtype = model.dtype
        self._keeps_rows = "logits_to_keep" in inspect.signature(model.forward).parameters

    def __call__(self, input_ids: Tensor, positions: Tensor, attention: AttentionStep, rows: Tensor) -> Tensor:
        given: dict[str, Any] = {"logits_to_keep": rows} if self._keeps_rows else {}
        with attending(attention):
            output = self.model(input_ids=input_ids[None], position_ids=positions[None], use_cache=False, **given)
        logits: Tensor = output.logits[0]
        return logits if self._keeps_rows else logits[rows]
