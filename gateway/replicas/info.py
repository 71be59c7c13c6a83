"""Descriptions of replicas, as they report them."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.generation.call_grammar import CallSyntax
from gateway.generation.prompt import ReasoningTags


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    template_version: str
    template_supports_tools: bool
    template_supports_thinking: bool
    tool_parser: str
    """Detected from the chat template; empty: none."""
    reasoning_parser: str
    reasoning_tags: tuple[tuple[str, ReasoningTags], ...] = ()
    """For each reasoning format that has a pair of tags."""
    template_variables: frozenset[str] = frozenset()
    """The variables that the chat template reads."""
    vocab_size: int = 0
    """Every token id is below it; 0: not reported."""
    eos_token_ids: tuple[int, ...] = ()
    """Token ids that end the model's turn."""
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
    """False for an embedding model."""
    supports_constraints: bool = False
    vocabulary_hash: str = ""
    """Equal for services with the same tokens; empty: unknown."""
    kv_cache_dtype: str = ""
    """Element type of the KV cache, on which results depend; empty: unknown, or none."""


@dataclass(frozen=True, slots=True)
class EngineLoads:
    """The number of sequences on an engine."""

    num_running: int
    num_waiting: int


@dataclass(frozen=True, slots=True)
class DetokenizerInfo:
    tool_parsers: frozenset[str]
    reasoning_parsers: frozenset[str]
    call_syntaxes: tuple[tuple[str, CallSyntax], ...] = ()
    """For each tool-call format in which calls can be forced."""
    vocab_size: int = 0
    """Every token id is below it; 0: not reported."""
    vocabulary_hash: str = ""
    """Equal for services with the same tokens; empty: unknown."""
