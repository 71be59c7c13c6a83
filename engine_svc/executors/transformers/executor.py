"""Models that are not native: computed by transformers, with our paged attention."""

from __future__ import annotations

import torch

from engine_svc.attention.interface import AttentionBackend
from engine_svc.executors.interface import ExecutorInfo, PreparedStep
from engine_svc.executors.transformers.model import TransformersModel
from engine_svc.sampling.logit_rows import LogitRows


class TransformersExecutor:
    """See ``engine_svc.executors.interface.Executor``. The attention backend owns the KV cache."""

    def __init__(self, model: TransformersModel, attention: AttentionBackend, info: ExecutorInfo) -> None:
        self.model = model
        self.attention = attention
        self.info = info
        self.device = torch.device("cpu")

    def forward(self, step: PreparedStep) -> LogitRows:
        return self.model(step.input_ids, step.positions, self.attention.begin(step.paged), step.rows)
