"""A toy executor, written by following docs/adding-a-device.md: the next token depends on the last token alone.

Its KV cache keeps the tokens, so that a block that is wrong, or read before it is written, gives wrong logits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine_svc.executors.interface import ExecutorInfo, PreparedStep
from engine_svc.executors.load_request import LoadRequest
from engine_svc.models.config import RawConfig
from engine_svc.sampling.logit_rows import LogitRows
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.loading import match_weights


class BigramExecutor:
    """See ``engine_svc.executors.interface.Executor``. ``table`` has the logits after each token [vocab, vocab]"""

    def __init__(self, table: Tensor, info: ExecutorInfo) -> None:
        self.info = info
        self.device = table.device
        self._table = table
        self._cache = torch.full((info.cache.num_blocks * info.cache.block_size,), -1, device=table.device)

    def forward(self, step: PreparedStep) -> LogitRows:
        self._cache[step.paged.slot_mapping] = step.input_ids
        return self._table[self._cache[self._slots(step)[step.rows]]]

    def _slots(self, step: PreparedStep) -> Tensor:
        """The slots of the step's tokens according to the block tables, [tokens]"""
        counts = step.paged.query_starts.diff()
        owners = torch.repeat_interleave(torch.arange(len(counts), device=self.device), counts)
        blocks = step.paged.block_tables[owners, step.positions // self.info.cache.block_size]
        return blocks * self.info.cache.block_size + step.positions % self.info.cache.block_size


def load_bigram(request: LoadRequest) -> BigramExecutor:
    """An entry of ``engine_svc.executors.loading.EXECUTORS``."""
    if request.dtype == "bfloat16" or request.quantization not in ("auto", "none"):
        raise ModelLoadError("executor bigram computes in float32")
    config = RawConfig(request.checkpoint.config)
    vocab_size, longest = config.integer("vocab_size"), config.integer("max_position_embeddings")
    table = torch.empty(vocab_size, vocab_size)
    for tensor in match_weights({"table": (vocab_size, vocab_size)}, request.checkpoint.tensors()):
        tensor.copy_to(table)
    cache = request.cache.layout(torch.int64, bytes_per_token=8)
    return BigramExecutor(table, ExecutorInfo("bigram", "float32", vocab_size, longest, cache, batch_invariant=True))
