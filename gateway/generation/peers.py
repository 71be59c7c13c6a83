"""The three services as the gateway sees them: what goes in, what comes out, and who may be asked for it.

The engine is an interface, so that engines which speak another contract can stand behind it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, Protocol, TypeAlias

from gateway.generation.request import ChatRequest
from svclib.errors import ServiceError
from svclib.session import Opening

LogProbs: TypeAlias = Any
"""Log probabilities on their way from the engine to the detokenizer; nobody in between looks inside."""


class ReasoningState(IntEnum):
    """Where the answer starts, seen from the thinking; see common.proto."""

    UNSPECIFIED = 0
    UNDECIDED = 1
    OPEN = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The tags around the thinking, in tokens."""

    start_token_ids: tuple[int, ...]
    end_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """How a format writes a call; see detokenizer.proto."""

    opening: str
    before_name: str
    before_arguments: str
    closing: str
    separator: str
    special_tokens: tuple[tuple[str, int], ...] = ()
    """Spelling and id of each."""


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    template_version: str
    shows_tools: bool
    knows_thinking: bool
    tool_parser: str
    """Name of the format that the template suggests; empty: none."""
    reasoning_parser: str
    reasoning_tags: tuple[tuple[str, ReasoningTags], ...] = ()
    """Of each reasoning format that has a pair of them."""
    template_variables: frozenset[str] = frozenset()
    """What the chat template reads."""
    vocab_size: int = 0
    """Every token id is below it; 0: it does not say."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    model_path: str
    dtype: str
    max_context_length: int
    vocab_size: int
    simulated: bool
    generates: bool = True
    """Whether it continues prompts; a model that embeds does not."""
    supports_constraints: bool = False


@dataclass(frozen=True, slots=True)
class EngineLoads:
    """An engine's choices now."""

    num_running: int
    num_waiting: int


@dataclass(frozen=True, slots=True)
class DetokenizerInfo:
    tool_parsers: frozenset[str]
    reasoning_parsers: frozenset[str]
    call_syntaxes: tuple[tuple[str, CallSyntax], ...] = ()
    """Of each tool call format in which a model can be made to call."""
    vocab_size: int = 0
    """Every token id is below it; 0: it does not say."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation. Times are Unix seconds."""

    token_ids: Sequence[int]
    eos_token_ids: Sequence[int]
    reasoning_state: ReasoningState
    template_version: str
    rendered_at: float
    tokenized_at: float
    ignored_kwargs: Sequence[str]
    """Names of template variables that the template never reads."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the output must match; ``kind`` is the field of engine.proto, which says more."""

    kind: Literal["json_object", "json_schema", "grammar"]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """The beginning of the output that a constraint leaves free."""

    state: ReasoningState
    tags: ReasoningTags


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """What a request asks of the engine beside the prompt and ``Sampling``."""

    script: ScriptTokens | None = None
    constraint: Constraint | None = None
    thinking: Thinking | None = None
    """Without it a constraint holds from the first token."""


@dataclass(frozen=True, slots=True)
class ScriptTokens:
    """A script for a simulated model, tokenised: one list of tokens for each step."""

    steps: Sequence[Sequence[int]]
    repeat: int | None
    delay_ms: float | None
    finish: str | None


@dataclass(frozen=True, slots=True)
class Head:
    """What the engine says of a request once it has begun."""

    prompt_tokens: int
    cached_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """New output of one choice. ``ended_by_token``: the last token ended the choice and is no text."""

    index: int
    token_ids: Sequence[int]
    logprobs: LogProbs | None
    finish_reason: str
    ended_by_token: bool


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Times in the engine, Unix seconds; 0: did not happen."""

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


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a call. ``id`` and ``name`` are in its first piece and empty in the others."""

    index: int
    id: str
    name: str
    arguments: str


Delta: TypeAlias = ContentDelta | ReasoningDelta | ToolCallDelta


@dataclass(frozen=True, slots=True)
class TokenAlternative:
    """A token at one position, with the names that the API uses. ``bytes`` is None for a token that is no text."""

    token: str
    logprob: float
    bytes: list[int] | None


@dataclass(frozen=True, slots=True)
class TokenLogProb:
    """A sampled token and the most likely ones."""

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


class Generation(Protocol):
    """A running request: an async iterator of events. Leaving its context before the end aborts it."""

    def __aiter__(self) -> AsyncIterator[GenerateEvent]: ...

    async def __anext__(self) -> GenerateEvent: ...

    def when_too_slow(self, tell: Callable[[ServiceError], None]) -> None:
        """Tell of the request's end, should it come because its events were not read."""

    def stop_choice(self, index: int) -> None:
        """This choice needs no more tokens; the others go on. Has no effect on a choice that has ended."""


class EngineClient(Protocol):
    """An engine replica."""

    async def info(self) -> EngineInfo:
        """The loaded model. Raises ``ServiceError``."""

    def generate(
        self, request: ChatRequest, prompt: Prompt, options: GenerateOptions, opening: Opening
    ) -> AbstractAsyncContextManager[Generation]:
        """A request, which begins when the context is entered."""

    async def loads(self) -> EngineLoads:
        """The load now. Raises ``ServiceError``, within half a second."""

    async def give_up(self) -> None:
        """End what runs, with ``PeerLost``; the next request connects again."""

    async def close(self) -> None:
        """End what runs."""
