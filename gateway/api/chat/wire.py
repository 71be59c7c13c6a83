"""JSON that chunks and whole answers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.generation.events import TokenLogProb
from gateway.generation.record import RequestRecord


@dataclass(frozen=True, slots=True)
class Identity:
    """The fields that are equal in all chunks of an answer. ``created`` is in Unix seconds."""

    id: str
    created: int
    model: str
    system_fingerprint: str


def wire_usage(record: RequestRecord) -> dict[str, Any]:
    """The API's ``usage``, so far."""
    return {
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "total_tokens": record.prompt_tokens + record.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": record.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": record.reasoning_tokens},
    }


def wire_logprobs(logprobs: Sequence[TokenLogProb]) -> dict[str, Any]:
    """The API's ``logprobs`` of a choice."""
    return {"content": logprobs, "refusal": None}
