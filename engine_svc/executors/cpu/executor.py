"""A decoder of a native family, computed by the compiled C++ kernels: one call for all layers of a step.

Batch-invariant: the result for a token is a function of its own sequence alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine_svc.attention.cpu import KernelCache, batch_structure
from engine_svc.executors.cpu.decoder import DecoderStructure
from engine_svc.executors.cpu.weights import PackedWeights
from engine_svc.executors.interface import ExecutorInfo, PreparedStep
from engine_svc.kernels import structures
from engine_svc.kernels.library import Kernels
from engine_svc.kernels.packing import Format
from engine_svc.sampling.logit_rows import LogitRows, ProjectedRows


class CpuExecutor:
    """See ``engine_svc.executors.interface.HiddenStatesExecutor``. Hidden states and logits are float32."""

    def __init__(
        self,
        weights: PackedWeights,
        kernels: Kernels,
        cache: KernelCache,
        info: ExecutorInfo,
        tile_rows: Mapping[Format, int],
    ) -> None:
        """``tile_rows`` as in ``DecoderStructure``."""
        self.info = info
        self.device = torch.device("cpu")
        self._kernels = kernels
        self._cache = cache
        self._decoder = DecoderStructure(weights, cache.shape, tile_rows)
        self._hidden_size = weights.config.hidden_size
        self._workspace = torch.empty(0, dtype=torch.uint8)

    def forward(self, step: PreparedStep) -> LogitRows:
        return ProjectedRows(self.hidden_states(step), self._logits)

    def hidden_states(self, step: PreparedStep) -> Tensor:
        hidden = torch.empty((len(step.rows), self._hidden_size), dtype=torch.float32)
        tokens = structures.Tokens(
            step.input_ids.data_ptr(), step.positions.data_ptr(), step.rows.data_ptr(), len(step.rows)
        )
        decoder, workspace = self._decoder.structure, self._workspace_for(len(step.input_ids))
        self._kernels.forward(decoder, tokens, batch_structure(step.paged), self._cache.data, workspace, hidden)
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden_size] -> [rows, vocab_size]"""
        logits = torch.empty((len(hidden), self.info.vocab_size), dtype=torch.float32)
        workspace = self._workspace_for(len(hidden))
        self._kernels.logits(self._decoder.structure, hidden.contiguous(), workspace, logits)
        return logits

    def _workspace_for(self, num_tokens: int) -> Tensor:
        size = self._kernels.workspace_bytes(self._decoder.structure, num_tokens)
        if len(self._workspace) < size:
            self._workspace = torch.empty(0, dtype=torch.uint8)  # frees the old one first
            self._workspace = torch.empty(size, dtype=torch.uint8)
        return self._workspace
