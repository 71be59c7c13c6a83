"""What replicas tell of themselves."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.generation.call_grammar import CallSyntax
from gateway.generation.prompt import ReasoningTags


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
    eos_token_ids: tuple[int, ...] = ()
    """Tokens that end the model's turn."""
    vocabulary_hash: str = ""
    """Equal for services with the same tokens; empty: unknown."""


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
    vocabulary_hash: str = ""
    """Equal for services with the same tokens; empty: unknown."""


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
    vocabulary_hash: str = ""
    """Equal for services with the same tokens; empty: unknown."""
