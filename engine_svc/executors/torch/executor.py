"""The reference: a decoder of a native family, computed by torch. Other executors are compared with it."""

from __future__ import annotations

import torch
from torch import Tensor

from engine_svc.attention.interface import AttentionBackend
from engine_svc.executors.interface import ExecutorInfo, PreparedStep
from engine_svc.models.decoder import Decoder
from engine_svc.sampling.logit_rows import LogitRows, ProjectedRows


class TorchExecutor:
    """See ``engine_svc.executors.interface.HiddenStatesExecutor``. The attention backend owns the KV cache."""

    def __init__(self, model: Decoder, attention: AttentionBackend, info: ExecutorInfo) -> None:
        self.model = model
        self.attention = attention
        self.info = info
        self.device = torch.device("cpu")

    def forward(self, step: PreparedStep) -> LogitRows:
        return ProjectedRows(self.hidden_states(step), self.model.logits)

    def hidden_states(self, step: PreparedStep) -> Tensor:
        hidden: Tensor = self.model(step.input_ids, step.positions, self.attention.begin(step.paged), step.rows)
        return hidden
