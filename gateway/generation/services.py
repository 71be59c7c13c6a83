"""The three services as a generation needs them: interfaces, which ``gateway/replicas/`` implements.

An engine that speaks another contract can stand behind them, and in a test nothing at all.
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
    """What an engine is asked to continue."""

    prompt: Prompt
    sampling: Sampling
    n: int = 1
    script: ScriptTokens | None = None
    constraint: Constraint | None = None
    thinking: Thinking | None = None
    """Without it a constraint holds from the first token."""


@dataclass(frozen=True, slots=True)
class FormatInput:
    """How a detokenizer is to read the output of one choice. An empty parser is none."""

    prompt_tail_ids: Sequence[int] = ()
    """The last tokens of a prompt that the output continues: they may be the beginning of a character."""
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
    """A request to a service that answers with events, from ``start`` to ``leave``."""

    def start(self) -> None:
        """Send the request. To be followed by ``leave``, whatever happens."""

    def leave(self) -> None:
        """Cancel the request unless it is over."""

    def watch(self, on_news: Callable[[], None], on_slow: Callable[[ServiceError], None]) -> None:
        """``on_news``: something can be taken, or it is over. ``on_slow``: it has ended because nothing was taken."""

    def take(self) -> EventT_co | None:
        """All that waits, or a portion of it; None while there is nothing. Raises ``ServiceError`` after the last."""

    @property
    def is_over(self) -> bool:
        """It has ended without an error, and everything was taken."""

    @property
    def has_more(self) -> bool:
        """More waits than the last ``take`` gave, or an error."""


class Generation(Stream[GenerateEvent], Protocol):
    """A request on an engine."""

    def stop_choice(self, index: int) -> None:
        """This choice needs no more tokens; the others go on. Has no effect on a choice that has ended."""


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
        """The conversation as a prompt, and the steps of a script; one of more than ``max_tokens`` is refused."""

    async def tokenize(self, text: str) -> Sequence[int]:
        """A text as a prompt, with the tokens that begin one. Special tokens in it are plain text."""

    async def tokenize_script(self, steps: Sequence[str | bytes]) -> Sequence[Sequence[int]]:
        """The tokens of each step by itself. The spelling of a special token is that token."""


class EngineClient(Protocol):
    """An engine replica."""

    def generate(self, work: GenerateInput, opening: Opening) -> Generation:
        """A request, which begins when it is started."""


class DetokenizerClient(Protocol):
    """A detokenizer replica."""

    def format(self, work: FormatInput, opening: Opening) -> Formatting:
        """A choice, which begins when it is started."""


class Chosen(Protocol[ClientT_co]):
    """A ready replica that was given some work."""

    @property
    def address(self) -> str: ...

    @property
    def client(self) -> ClientT_co: ...


class Replicas(Protocol[ClientT_co]):
    """The replicas of one service that agree on a model."""

    def choose(self, *, choices: int = 1, avoid: Set[str] = frozenset()) -> AbstractContextManager[Chosen[ClientT_co]]:
        """Give work to a replica for as long as the context lasts; to one at none of these addresses if there is one.

        Raises ``Unavailable`` when none is ready.
        """


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model, and replicas that agree on it: what a token means to one of them it means to all."""

    model: Model
    tokenizers: Replicas[TokenizerClient]
    engines: Replicas[EngineClient]
    detokenizers: Replicas[DetokenizerClient]


class Models(Protocol):
    """Which models there are."""

    def find(self, name: str) -> ServedModel:
        """Where a request goes now. Raises ``ModelNotFound``, or ``Unavailable`` naming who is not ready."""
