"""Interfaces of the three services. ``gateway/replicas/`` implements them.

An engine with another wire protocol, or a fake in a test, can implement them as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gateway.generation.constraint import Constraint, Thinking
from gateway.generation.events import Chunk, Formatted, GenerateEvent
from gateway.generation.model import Model
from gateway.generation.prompt import Prompt, ReasoningState, ScriptTokens
from gateway.generation.request import Conversation, Sampling, Tool
from svclib.errors import ServiceError
from svclib.session import Opening

ClientT_co = TypeVar("ClientT_co", covariant=True)
EventT_co = TypeVar("EventT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class GenerateInput:
    """The input of an engine."""

    prompt: Prompt
    sampling: Sampling
    n: int = 1
    script: ScriptTokens | None = None
    constraint: Constraint | None = None
    thinking: Thinking | None = None
    """None: a constraint applies from the first token."""
    output_ids: Sequence[int] = ()
    """Output of an earlier attempt, which the only choice continues."""
    choice_index: int = 0
    """Which choice of the client's request the first one is; its noise depends on it."""


@dataclass(frozen=True, slots=True)
class FormatInput:
    """How a detokenizer formats the output of one choice. An empty parser name means no parser."""

    prompt_tail_ids: Sequence[int] = ()
    """The last tokens of a prompt that the output continues: they may end inside a character."""
    stop: Sequence[str] = ()
    min_tokens: int | None = None
    skip_special_tokens: bool | None = None
    reasoning_parser: str = ""
    reasoning_state: ReasoningState = ReasoningState.UNSPECIFIED
    tool_parser: str = ""
    tools: Sequence[Tool] = ()
    named_function: str = ""
    calls_after_reasoning: bool = False


class Stream(Protocol[EventT_co]):
    """A request to a service that answers with a stream of events."""

    def start(self) -> None:
        """Send the request. ``leave`` must be called afterwards, in any case."""

    def leave(self) -> None:
        """Cancel the request unless it is over."""

    def watch(self, on_news: Callable[[], None], on_slow: Callable[[ServiceError], None]) -> None:
        """``on_news``: ``take`` has a result. ``on_slow``: the stream was ended because it was read too slowly."""

    def take(self) -> EventT_co | None:
        """The waiting events, or a part of them, as one; None: none. Raises ``ServiceError`` after the last."""

    @property
    def is_over(self) -> bool:
        """It has ended without an error, and every event was taken."""

    @property
    def has_more(self) -> bool:
        """More events than the last ``take`` returned are waiting, or an error."""


class Generation(Stream[GenerateEvent], Protocol):
    """A request on an engine."""

    def stop_choice(self, index: int) -> None:
        """End one choice; the others continue. Has no effect on a choice that has ended."""


class Formatting(Stream[Formatted], Protocol):
    """A choice on a detokenizer."""

    def send(self, chunk: Chunk) -> None:
        """Never blocks; has no effect once the choice has ended."""


class TokenizerClient(Protocol):
    """A tokenizer replica. Methods raise ``ServiceError``."""

    async def render(
        self,
        conversation: Conversation,
        tools: Sequence[Tool],
        script: Sequence[str | bytes],
        request_id: str,
        max_tokens: int,
    ) -> Prompt:
        """Render a conversation, and tokenise the steps of a script. A prompt beyond ``max_tokens`` is refused."""

    async def tokenize(self, text: str) -> Sequence[int]:
        """Tokenise a prompt, with the special tokens that start one. Special tokens in the text are plain text."""

    async def tokenize_script(self, steps: Sequence[str | bytes]) -> Sequence[Sequence[int]]:
        """Tokenise each step on its own. The text of a special token becomes that token."""


class EngineClient(Protocol):
    """An engine replica."""

    def generate(self, work: GenerateInput, opening: Opening) -> Generation:
        """A request, sent by ``start``."""


class DetokenizerClient(Protocol):
    """A detokenizer replica."""

    def format(self, work: FormatInput, opening: Opening) -> Formatting:
        """The formatting of one choice, sent by ``start``."""


class Chosen(Protocol[ClientT_co]):
    """A ready replica that was chosen for a request."""

    @property
    def address(self) -> str: ...

    @property
    def client(self) -> ClientT_co: ...


class Replicas(Protocol[ClientT_co]):
    """The replicas of one service that agree on a model."""

    def choose(self, *, choices: int = 1, avoid: Set[str] = frozenset()) -> AbstractContextManager[Chosen[ClientT_co]]:
        """A replica, with ``choices`` counted on it as long as the context lasts; not one to ``avoid`` if possible.

        Raises ``Unavailable`` when none is ready.
        """


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model, and replicas that agree on it: a token id means the same to all of them."""

    model: Model
    tokenizers: Replicas[TokenizerClient]
    engines: Replicas[EngineClient]
    detokenizers: Replicas[DetokenizerClient]


class Models(Protocol):
    """The served models."""

    def find(self, name: str) -> ServedModel:
        """The model and its replicas. Raises ``ModelNotFound``, or ``Unavailable`` naming what is not ready."""
