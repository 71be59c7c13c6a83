"""When a choice ends, and which of a step's tokens still belong to it."""

from __future__ import annotations

from dataclasses import dataclass

from engine_svc.output import Sampled
from engine_svc.request import FinishReason
from engine_svc.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Ending:
    """The choice ends after the first ``num_tokens`` of the new tokens; ``matched_token_id`` if that token ended it."""

    num_tokens: int
    finish_reason: FinishReason
    matched_token_id: int | None = None


def ending_of(sequence: Sequence, sampled: Sampled) -> Ending | None:
    """Where the new tokens, not yet appended, end the choice; None if it continues.

    The first ``min_tokens`` tokens never end it, and reaching ``max_tokens`` always does. A complete constraint ends it
    regardless of both.
    """
    params = sequence.request.sampling_params
    position = sequence.num_output_tokens
    for count, token_id in enumerate(sampled.token_ids, start=1):
        if token_id in sequence.end_token_ids and position >= params.min_tokens:
            return Ending(count, "stop", token_id)
        position += 1
        is_complete = sampled.completed and count == len(sampled.token_ids)
        if position >= params.max_tokens and not is_complete:
            return Ending(count, "length")
    if sampled.completed:
        return Ending(len(sampled.token_ids), "stop")
    return Ending(len(sampled.token_ids), "length") if sampled.ended else None
