"""Log probabilities of the prompt's own tokens, for those who ask.

Logits are made for a few rows at a time: for all rows of a chunk and a large vocabulary they would take more memory
than everything else in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import Final

from torch import Tensor

from engine_svc.execution.runner import ScheduledSequence
from engine_svc.request import PromptLogprobs, Sampled, TokenLogprobs
from engine_svc.sampling.logprobs import token_logprobs

_GROUP_ELEMENTS: Final = 1 << 21

Logits = Callable[[Tensor], Tensor]
"""[rows, hidden] -> [rows, vocab]"""


def add_prompt_logprobs(
    batch: SequenceOf[ScheduledSequence],
    sampled: Iterable[Sampled | Exception],
    hidden: Tensor,
    logits: Logits,
    vocab_size: int,
) -> list[Sampled | Exception]:
    """What the step answers: what was ``sampled``, and log probabilities of the prompts' tokens.

    ``hidden`` [rows, hidden] is what the model leaves for the ``prompt_rows`` of all entries. A prompt with logits that
    are NaN or +inf gets an exception.
    """
    samples = iter(sampled)
    results: list[Sampled | Exception] = []
    end = 0
    for entry in batch:
        start, end = end, end + len(entry.prompt_rows)
        result = next(samples) if entry.samples else Sampled(())
        if isinstance(result, Sampled) and start < end:
            result = _with_prompt(result, entry, hidden[start:end], logits, max(1, _GROUP_ELEMENTS // vocab_size))
        if entry.answers:
            results.append(result)
    return results


def _with_prompt(
    result: Sampled, entry: ScheduledSequence, hidden: Tensor, logits: Logits, group_size: int
) -> Sampled | Exception:
    request, rows = entry.sequence.request, entry.prompt_rows
    token_ids = request.prompt_token_ids[rows.start + 1 : rows.stop + 1]
    found: list[TokenLogprobs] = []
    for start in range(0, len(token_ids), group_size):
        group = token_ids[start : start + group_size]
        group_logits = logits(hidden[start : start + len(group)]).float()
        if not bool((group_logits.amax(dim=-1) < float("inf")).all()):  # NaN is not less either
            return FloatingPointError("logits of the prompt are not finite")
        found += token_logprobs(group_logits, group, [request.sampling_params.prompt_logprobs or 0] * len(group))
    return replace(result, prompt=PromptLogprobs(token_ids, tuple(found)))
