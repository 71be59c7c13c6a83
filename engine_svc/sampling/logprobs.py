"""Log probabilities for the client, from the raw logits."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Final

import torch
from torch import Tensor

from engine_svc.request import TokenLogprobs
from engine_svc.sampling.ranking import Ranking

IMPOSSIBLE: Final = -9999.0


def token_logprobs(logits: Tensor, token_ids: SequenceOf[int], num_top: SequenceOf[int]) -> list[TokenLogprobs]:
    """For each row, the chosen token's log probability and those of the ``num_top`` best.

    ``logits`` float32 [rows, vocab], without NaN or +inf.
    """
    logprobs = torch.log_softmax(logits, dim=-1).nan_to_num(nan=IMPOSSIBLE).clamp(min=IMPOSSIBLE)
    chosen_ids = torch.tensor(token_ids, device=logits.device)[:, None]
    chosen = logprobs.gather(1, chosen_ids).squeeze(1).tolist()
    most = min(max(num_top), logits.shape[1])
    ids = Ranking(logits).best(most)[1] if most else chosen_ids[:, :0]
    tops = zip(ids.tolist(), logprobs.gather(1, ids).tolist(), strict=True)
    return [
        TokenLogprobs(logprob, tuple(zip(row_ids[:count], row_values[:count], strict=True)))
        for logprob, count, (row_ids, row_values) in zip(chosen, num_top, tops, strict=True)
    ]
