"""The fields of ``POST /v1/chat/completions``: names, types and limits.

What fields mean together is checked in ``read.py``; what depends on the loaded model (token ids, the context, tools,
scripts) in ``gateway/generation/model.py``. The engine and the tokenizer check again what only they know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from gateway.api.chat.messages import Message
from gateway.api.chat.response_format import ResponseFormat
from gateway.api.chat.thinking import is_thinking_field
from gateway.api.chat.tools import Tool
from gateway.api.chat.unsupported import is_known
from gateway.api.schemas.base import TAG, Schema
from gateway.api.schemas.simulate import Simulate
from gateway.policy.limits import (
    MAX_BIASES,
    MAX_CHOICES,
    MAX_LABEL_CHARS,
    MAX_MESSAGES,
    MAX_METADATA,
    MAX_METADATA_KEY_CHARS,
    MAX_METADATA_VALUE_CHARS,
    MAX_REPETITION_PENALTY,
    MAX_STOP_CHARS,
    MAX_STOP_TOKENS,
    MAX_STOPS,
    MAX_TOKENS,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
    MIN_REPETITION_PENALTY,
)

Label = Annotated[str, Field(max_length=MAX_LABEL_CHARS)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
TokenCount = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]


def _stop_kind(stop: Any) -> str | None:
    if isinstance(stop, list):
        return f"{TAG}list"
    return f"{TAG}one" if isinstance(stop, str) else None


Stop = Annotated[
    Annotated[StopString, Tag(f"{TAG}one")]
    | Annotated[list[StopString], Field(max_length=MAX_STOPS, fail_fast=True), Tag(f"{TAG}list")],
    Discriminator(
        _stop_kind, custom_error_type="stop_type", custom_error_message="must be a string or a list of strings"
    ),
]


class StreamOptions(Schema):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class ChatCompletion(Schema):
    """See the README for what each field means."""

    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_TOKENS)] | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=MIN_REPETITION_PENALTY, le=MAX_REPETITION_PENALTY)] | None = None
    logit_bias: (
        Annotated[
            dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")], Annotated[float, Field(ge=-100, le=100)]],
            Field(max_length=MAX_BIASES),
        ]
        | None
    ) = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None

    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    stop: Stop | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKENS, fail_fast=True)] | None = None
    ignore_eos: bool | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None

    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None

    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    simulate: Simulate | None = None

    # These have no effect on the output.
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Label | None = None
    service_tier: Label | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, Field(max_length=MAX_METADATA_KEY_CHARS)],
                Annotated[str, Field(max_length=MAX_METADATA_VALUE_CHARS)],
            ],
            Field(max_length=MAX_METADATA),
        ]
        | None
    ) = None

    def unknown(self, prefix: str = "") -> Iterator[str]:
        yield from (name for name in super().unknown(prefix) if not (is_known(name) or is_thinking_field(name)))
        for number, message in enumerate(self.messages):
            yield from message.unknown(f"messages[{number}].")
        for number, tool in enumerate(self.tools or ()):
            yield from tool.unknown(f"tools[{number}].")
        if self.stream_options is not None:
            yield from self.stream_options.unknown("stream_options.")
        if self.response_format is not None:
            yield from self.response_format.unknown("response_format.")
