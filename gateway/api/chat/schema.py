"""The table of fields of ``POST /v1/chat/completions``: names, types and limits, each rejected here.

What depends on the loaded model (token ids, the context, tools, scripts) is checked in
``gateway/generation/model.py``; the engine and the tokenizer check again what they alone can know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import Discriminator, Field, Tag

from gateway.api.chat.messages import Message, read_messages
from gateway.api.chat.request import ChatRequest
from gateway.api.chat.response_format import ResponseFormat, read_response_format
from gateway.api.chat.stream import StreamOptions as ChatStreamOptions
from gateway.api.chat.thinking import is_about_thinking, read_thinking
from gateway.api.chat.tools import Tool, dump_object, read_tool_choice, read_tools
from gateway.api.chat.unsupported import is_known, refuse_unsupported
from gateway.api.schemas.base import TAG, Schema, validate
from gateway.api.schemas.simulate import Simulate, read_script
from gateway.generation import request as neutral
from gateway.generation.constraint import asked_by
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
    MAX_TEMPLATE_KWARGS_BYTES,
    MAX_TOKENS,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
    MIN_REPETITION_PENALTY,
)
from svclib.errors import InvalidRequest, Unsupported

_NAMES: Final = neutral.FieldNames(prompt="messages", logprobs="top_logprobs")
_COMPLETION_NAMES: Final = replace(_NAMES, max_tokens="max_completion_tokens")
_NAMED_AS_A_WHOLE: Final = frozenset({"logit_bias", "metadata", "stop", "stop_token_ids"})
_PLACED_IN_THE_MESSAGE: Final = frozenset({"response_format"})

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

    # These cannot change the output.
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
        yield from (name for name in super().unknown(prefix) if not (is_known(name) or is_about_thinking(name)))
        for number, message in enumerate(self.messages):
            yield from message.unknown(f"messages[{number}].")
        for number, tool in enumerate(self.tools or ()):
            yield from tool.unknown(f"tools[{number}].")
        if self.stream_options is not None:
            yield from self.stream_options.unknown("stream_options.")
        if self.response_format is not None:
            yield from self.response_format.unknown("response_format.")


def read_chat(document: Mapping[str, Any], *, reject_unknown: bool) -> ChatRequest:
    """The request in a document. Raises ``InvalidRequest`` naming the field at fault."""
    fields = validate(ChatCompletion, document, _NAMED_AS_A_WHOLE, _PLACED_IN_THE_MESSAGE)
    refuse_unsupported(document)
    ignored = tuple(fields.unknown())
    request = ChatRequest(_read_generation(fields, document, reject_unknown), _read_stream(fields), ignored)
    if fields.continue_final_message and (constrained_by := asked_by(request.generation)):
        raise InvalidRequest(
            f"{constrained_by} is about whole answers and excludes continue_final_message",
            param="continue_final_message",
        )
    if ignored and reject_unknown:
        raise InvalidRequest(f"unknown field: {ignored[0]}", param=ignored[0])
    return request


def _read_generation(
    fields: ChatCompletion, document: Mapping[str, Any], reject_unknown: bool
) -> neutral.GenerationRequest:
    tools = read_tools(fields.tools or ())
    tool_choice = read_tool_choice(fields.tool_choice, tools)
    return neutral.GenerationRequest(
        model=fields.model,
        prompt=_read_conversation(fields, document, reject_unknown),
        sampling=_read_sampling(fields),
        n=fields.n or 1,
        stop=(fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ()),
        tools=() if tool_choice is None else tools,
        tool_choice=tool_choice or neutral.ToolChoice(),
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        response_format=read_response_format(fields.response_format),
        skip_special_tokens=fields.skip_special_tokens,
        script=None if fields.simulate is None else read_script(fields.simulate),
        names=_NAMES if fields.max_completion_tokens is None else _COMPLETION_NAMES,
    )


def _read_sampling(fields: ChatCompletion) -> neutral.Sampling:
    if fields.top_logprobs and not fields.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs", param="top_logprobs")
    max_tokens = _read_max_tokens(fields)
    if max_tokens is not None and (fields.min_tokens or 0) > max_tokens:
        raise InvalidRequest(f"min_tokens is more than the {max_tokens} tokens allowed", param="min_tokens")
    return neutral.Sampling(
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        min_p=fields.min_p,
        frequency_penalty=fields.frequency_penalty,
        presence_penalty=fields.presence_penalty,
        repetition_penalty=fields.repetition_penalty,
        max_tokens=max_tokens,
        min_tokens=fields.min_tokens,
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        ignore_eos=fields.ignore_eos,
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
        seed=fields.seed,
        logit_bias={int(token_id): bias for token_id, bias in (fields.logit_bias or {}).items()},
    )


def _read_max_tokens(fields: ChatCompletion) -> int | None:
    given = {fields.max_tokens, fields.max_completion_tokens} - {None}
    if len(given) > 1:
        raise InvalidRequest(
            "max_tokens and max_completion_tokens are two names of one thing and differ", param="max_completion_tokens"
        )
    return given.pop() if given else None


def _read_stream(fields: ChatCompletion) -> ChatStreamOptions | None:
    options = fields.stream_options
    if not fields.stream:
        if options is not None:
            raise InvalidRequest("stream_options needs stream", param="stream_options")
        return None
    if options is None:
        return ChatStreamOptions()
    if options.include_obfuscation:
        raise Unsupported("obfuscation is not supported", param="stream_options.include_obfuscation")
    return ChatStreamOptions(bool(options.include_usage), bool(options.continuous_usage_stats))


def _read_conversation(
    fields: ChatCompletion, document: Mapping[str, Any], reject_unknown: bool
) -> neutral.Conversation:
    if fields.continue_final_message:
        if fields.add_generation_prompt:
            raise InvalidRequest("add_generation_prompt excludes continue_final_message", param="add_generation_prompt")
        if fields.messages[-1].role != "assistant":
            raise InvalidRequest("only an assistant's message can be continued", param="continue_final_message")
    kwargs = fields.chat_template_kwargs
    return neutral.Conversation(
        messages=read_messages(fields.messages),
        add_generation_prompt=fields.add_generation_prompt,
        continue_final_message=fields.continue_final_message,
        template_kwargs_json=dump_object(kwargs, "chat_template_kwargs", MAX_TEMPLATE_KWARGS_BYTES) if kwargs else "",
        thinking=read_thinking(document),
        rejects_unread_kwargs=reject_unknown,
    )
