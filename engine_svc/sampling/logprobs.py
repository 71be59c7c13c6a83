"""Log probabilities for the client, from the raw logits: of sampled tokens and of the prompt.

The logits of a prompt are read a few rows at a time: for all rows of a chunk and a large vocabulary they would take
more memory than everything else in a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from engine_svc.output import PromptLogprobs, Sampled, TokenLogprobs
from engine_svc.sampling.logit_rows import LogitRows
from engine_svc.sampling.ranking import Ranking
from engine_svc.scheduling.step import ScheduledSequence

IMPOSSIBLE: Final = -9999.0

_GROUP_ELEMENTS: Final = 1 << 21
"""Logits of a prompt that are read at a time"""


def token_logprobs(logits: Tensor, token_ids: SequenceOf[int], num_top: SequenceOf[int]) -> list[TokenLogprobs]:
    """For each row, the log probability of the chosen token and those of the ``num_top`` best.

    ``logits`` float32 [rows, vocab], without NaN or +inf.
    """
    logprobs = torch.log_softmax(logits, dim=-1).nan_to_num(nan=IMPOSSIBLE).clamp(min=IMPOSSIBLE)
    chosen_ids = torch.tensor(token_ids, device=logits.device)[:, None]
    chosen = logprobs.gather(1, chosen_ids).squeeze(1).tolist()
    num_best = min(max(num_top), logits.shape[1])
    ids = Ranking(logits).best(num_best)[1] if num_best else chosen_ids[:, :0]
    tops = zip(ids.tolist(), logprobs.gather(1, ids).tolist(), strict=True)
    return [
        TokenLogprobs(logprob, tuple(zip(row_ids[:count], row_values[:count], strict=True)))
        for logprob, count, (row_ids, row_values) in zip(chosen, num_top, tops, strict=True)
    ]


def add_prompt_logprobs(
    batch: SequenceOf[ScheduledSequence],
    sampled: Iterable[Sampled | Exception],
    logits: LogitRows,
    first_row: int,
    vocab_size: int,
) -> list[Sampled | Exception]:
    """The results of a step: ``sampled``, with the log probabilities of prompt tokens added.

    From ``first_row`` on, ``logits`` are those of the ``prompt_rows`` of all entries. A prompt with NaN or +inf in its
    logits gets an exception.
    """
    samples = iter(sampled)
    results: list[Sampled | Exception] = []
    group_size = max(1, _GROUP_ELEMENTS // vocab_size)
    end = first_row
    for entry in batch:
        start, end = end, end + len(entry.prompt_rows)
        result = next(samples) if entry.samples else Sampled(())
        if isinstance(result, Sampled) and start < end:
            result = _with_prompt(result, entry, logits, start, group_size)
        if entry.has_output:
            results.append(result)
    return results


def _with_prompt(
    result: Sampled, entry: ScheduledSequence, logits: LogitRows, first_row: int, group_size: int
) -> Sampled | Exception:
    request, rows = entry.sequence.request, entry.prompt_rows
    token_ids = request.prompt_token_ids[rows.start + 1 : rows.stop + 1]
    found: list[TokenLogprobs] = []
    for start in range(0, len(token_ids), group_size):
        group = token_ids[start : start + group_size]
        group_logits = logits[first_row + start : first_row + start + len(group)].float()
        if not bool((group_logits.amax(dim=-1) < float("inf")).all()):  # false for NaN too
            return FloatingPointError("logits of the prompt are not finite")
        found += token_logprobs(group_logits, group, [request.sampling_params.prompt_logprobs or 0] * len(group))
    return replace(result, prompt=PromptLogprobs(token_ids, tuple(found)))
