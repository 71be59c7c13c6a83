"""A request to generate, whatever endpoint it came by: read, checked for itself, and frozen.

None always means that the client gave no value, so that the service which owns the default applies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the assistant made in an earlier turn; ``arguments`` is the JSON text as the client sent it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. ``content`` is a string, or the texts of a list of parts, or None where the client sent none."""

    role: str
    content: str | tuple[str, ...] | None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; ``parameters_json`` is its JSON Schema as text."""

    name: str
    description: str | None = None
    parameters_json: str | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """How the tools may be used: ``auto`` leaves it to the model, ``required`` demands calls, ``named`` one call."""

    mode: Literal["auto", "required", "named"] = "auto"
    allowed: tuple[str, ...] | None = None
    """The functions that may be called; None: all."""

    @property
    def is_forced(self) -> bool:
        return self.mode != "auto"


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """The content must be JSON: a value of a JSON Schema, or without one any object."""

    schema_json: str | None = None


@dataclass(frozen=True, slots=True)
class ThinkingWish:
    """What one field asks of the model's thinking; a template that reads one of the ``variables`` can grant it."""

    param: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool | None = None
    """True: the model is to think. False: it is not to. None: something else."""
    met_without_thinking: bool = False
    """A model that does not think does this anyway."""
    is_for_template: bool = False
    """The client has given the variable to the template itself."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens; see ``SamplingParams`` in engine.proto. ``logprobs`` counts the alternatives to report."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool | None = None
    logprobs: int | None = None
    seed: int | None = None
    logit_bias: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Script:
    """What a simulated model answers: one step is a text or bytes."""

    steps: tuple[str | bytes, ...]
    repeat: int | None = None
    delay_ms: float | None = None
    finish: Literal["stop", "length"] | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt that the model's chat template renders."""

    messages: tuple[Message, ...]
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    template_kwargs_json: str = ""
    thinking: tuple[ThinkingWish, ...] = ()
    """What is asked of the thinking, by field; no two of them contradict each other."""
    rejects_unread_kwargs: bool = False
    """A variable that the template never reads is an error."""


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt to be tokenised as it is. Special tokens in it are plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt that is tokens already."""

    token_ids: tuple[int, ...]


PromptSource: TypeAlias = Conversation | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class FieldNames:
    """How the endpoint spells the fields that errors found later are about."""

    prompt: str = "prompt"
    max_tokens: str = "max_tokens"
    logprobs: str = "logprobs"
    script: str = "simulate.steps"
    response_format: str = "response_format"
    response_schema: str = "response_format.json_schema.schema"
    function: str = "tools[{}].function"
    """One of the tools, by number."""


DEFAULT_NAMES: Final = FieldNames()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to generate."""

    model: str
    prompt: PromptSource
    sampling: Sampling
    n: int = 1
    stop: tuple[str, ...] = ()
    skip_special_tokens: bool | None = None
    tools: tuple[Tool, ...] = ()
    """The tools to offer: none with ``tool_choice: none``."""
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    """Several calls may be made in one answer."""
    response_format: JsonFormat | None = None
    """None: the content may be any text."""
    script: Script | None = None
    names: FieldNames = DEFAULT_NAMES

    @property
    def continues_prompt(self) -> bool:
        """The output goes on in the middle of the prompt's text, perhaps of a character."""
        return not isinstance(self.prompt, Conversation) or bool(self.prompt.continue_final_message)
