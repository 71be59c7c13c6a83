"""A model of transformers as the engine sees it."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine_svc.attention.interface import AttentionConfig, AttentionStep
from engine_svc.executors.transformers.attention import attending


class FallbackModel:
    """See ``engine_svc.models.causal_lm.CausalLM``.

    What follows the last layer differs between models of transformers and cannot be called alone. So "what the last
    layer leaves" is here the logits themselves: of all rows of a step at once, which takes more memory.
    """

    def __init__(self, model: PreTrainedModel, attention_config: AttentionConfig) -> None:
        """``model`` has ``engine_svc.executors.transformers.attention.PAGED`` as its ``attn_implementation``."""
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

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden
