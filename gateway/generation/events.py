"""Events of a running request: tokens from the engine, text from the detokenizer, and what writers read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias

LogProbs: TypeAlias = Any
"""Log probabilities on their way from the engine to the detokenizer; opaque to the gateway."""


@dataclass(frozen=True, slots=True)
class Head:
    """The engine's first message about a request, once it has started."""

    prompt_tokens: int
    cached_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """New output of one choice. ``ended_by_token``: the last token ended the choice and is not part of the text."""

    index: int
    token_ids: Sequence[int]
    logprobs: LogProbs | None
    finish_reason: str
    ended_by_token: bool


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Times in the engine, Unix seconds; 0: not reached."""

    queue_enter_at: float
    prefill_start_at: float
    first_token_at: float
    last_token_at: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class GenerateEvent:
    chunks: list[Chunk]
    head: Head | None
    stats: EngineStats | None


@dataclass(frozen=True, slots=True)
class ContentDelta:
    text: str

    @property
    def num_chars(self) -> int:
        return len(self.text)


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str

    @property
    def num_chars(self) -> int:
        return len(self.text)


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a call. ``id`` and ``name`` are in its first piece and empty in the others."""

    index: int
    id: str
    name: str
    arguments: str

    @property
    def num_chars(self) -> int:
        return len(self.arguments)


Delta: TypeAlias = ContentDelta | ReasoningDelta | ToolCallDelta


@dataclass(frozen=True, slots=True)
class TokenAlternative:
    """A token at one position, in the API's field names. ``bytes`` is None for a token that is not text."""

    token: str
    logprob: float
    bytes: list[int] | None


@dataclass(frozen=True, slots=True)
class TokenLogProb:
    """A sampled token and the most likely tokens at its position."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TokenAlternative]


@dataclass(frozen=True, slots=True)
class Finish:
    """How a choice ended. ``reason`` is ``stop``, ``length`` or ``tool_calls``."""

    reason: str
    completion_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class Formatted:
    """New formatted output of one choice."""

    deltas: list[Delta]
    logprobs: list[TokenLogProb]
    finish: Finish | None


@dataclass(frozen=True, slots=True)
class Output:
    """New output of one choice."""

    index: int
    formatted: Formatted


class Signal(Enum):
    """An event that is not output."""

    STARTED = auto()
    """The engine has started the request."""
    PING = auto()
    """The time between two SSE comments has passed."""


Event: TypeAlias = Output | Signal
