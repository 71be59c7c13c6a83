"""A request to generate, from any endpoint: read, checked on its own, and frozen.

None means that the client gave no value; the service that owns the default applies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of an earlier assistant turn. ``arguments`` is the JSON text as the client sent it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. ``content`` is a string, the texts of a list of parts, or None if the client sent none."""

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
    """``auto``: the model decides. ``required``: at least one call. ``named``: exactly one call."""

    mode: Literal["auto", "required", "named"] = "auto"
    allowed: tuple[str, ...] | None = None
    """The names of the functions that may be called; None: all."""

    @property
    def is_forced(self) -> bool:
        return self.mode != "auto"


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """The content must be JSON: a value of a JSON Schema, or any object without one."""

    schema_json: str | None = None


@dataclass(frozen=True, slots=True)
class ThinkingOption:
    """What one field asks about thinking. A chat template that reads one of the ``variables`` supports it."""

    param: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool | None = None
    """Whether the model should think; None: the option is about something else."""
    satisfied_without_thinking: bool = False
    """The option has no effect on a model without reasoning, and is accepted there."""
    is_template_variable: bool = False
    """The client gave the variable in ``chat_template_kwargs``."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """See ``SamplingParams`` in engine.proto. ``logprobs`` is the number of alternatives to report."""

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
    """The output of a simulated model; each step is a text or bytes."""

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
    thinking: tuple[ThinkingOption, ...] = ()
    """One for each field; no two contradict each other."""
    rejects_unread_kwargs: bool = False
    """A ``chat_template_kwargs`` name that the template never reads is an error."""


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt that is tokenised as it is. Special tokens in it are plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt that is already token ids."""

    token_ids: tuple[int, ...]


PromptSource: TypeAlias = Conversation | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The endpoint's names of fields, for errors that are found later."""

    prompt: str = "prompt"
    max_tokens: str = "max_tokens"
    logprobs: str = "logprobs"
    script: str = "simulate.steps"
    response_format: str = "response_format"
    response_schema: str = "response_format.json_schema.schema"
    function: str = "tools[{}].function"
    """Formatted with the index of a tool."""


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
    """Empty with ``tool_choice: none``."""
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    """One answer may hold several calls."""
    response_format: JsonFormat | None = None
    """None: any text."""
    script: Script | None = None
    names: FieldNames = DEFAULT_NAMES

    @property
    def continues_prompt(self) -> bool:
        """The output continues the prompt's text, perhaps inside a character."""
        return not isinstance(self.prompt, Conversation) or bool(self.prompt.continue_final_message)
