"""The tokenizer's result for a request: token ids, and facts for the engine and the detokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ReasoningState(IntEnum):
    """Whether the output starts inside reasoning; see common.proto."""

    UNSPECIFIED = 0
    UNDECIDED = 1
    OPEN = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The tags around reasoning, as token ids."""

    start_token_ids: tuple[int, ...]
    end_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as token ids. Times are Unix seconds; 0.0 without a chat template."""

    token_ids: Sequence[int]
    eos_token_ids: Sequence[int]
    reasoning_state: ReasoningState
    template_version: str = ""
    rendered_at: float = 0.0
    tokenized_at: float = 0.0
    ignored_kwargs: Sequence[str] = ()
    """Names of ``chat_template_kwargs`` that the template never reads."""
    script: Sequence[Sequence[int]] = ()
    """The tokens of each step of the request's script."""


@dataclass(frozen=True, slots=True)
class ScriptTokens:
    """A script for a simulated model, tokenised: one list of token ids for each step."""

    steps: Sequence[Sequence[int]]
    repeat: int | None
    delay_ms: float | None
    finish: str | None
