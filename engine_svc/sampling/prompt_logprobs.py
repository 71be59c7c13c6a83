"""Log probabilities of the prompt's own tokens, for requests that ask for them.

Logits are read for a few rows at a time: for all rows of a chunk and a large vocabulary they would take more memory
than everything else in a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import Final

from engine_svc.execution.runner import ScheduledSequence
from engine_svc.request import PromptLogprobs, Sampled, TokenLogprobs
from engine_svc.sampling.logit_rows import LogitRows
from engine_svc.sampling.logprobs import token_logprobs

_GROUP_ELEMENTS: Final = 1 << 21


def add_prompt_logprobs(
    batch: SequenceOf[ScheduledSequence],
    sampled: Iterable[Sampled | Exception],
    logits: LogitRows,
    first_row: int,
    vocab_size: int,
) -> list[Sampled | Exception]:
    """The results of a step: what was ``sampled``, and log probabilities of the prompts' tokens.

    From ``first_row`` on, ``logits`` are those of the ``prompt_rows`` of all entries. A prompt with logits that are NaN
    or +inf gets an exception.
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
        if not bool((group_logits.amax(dim=-1) < float("inf")).all()):  # NaN is not less either
            return FloatingPointError("logits of the prompt are not finite")
        found += token_logprobs(group_logits, group, [request.sampling_params.prompt_logprobs or 0] * len(group))
    return replace(result, prompt=PromptLogprobs(token_ids, tuple(found)))
