"""A chat completion request, read from its JSON document: what to generate, and how to answer.

``schema.py`` checks each field for itself; this file checks what fields mean together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.api.chat.messages import read_messages
from gateway.api.chat.request import ChatRequest
from gateway.api.chat.response_format import read_response_format
from gateway.api.chat.schema import ChatCompletion
from gateway.api.chat.stream import StreamOptions
from gateway.api.chat.thinking import read_thinking
from gateway.api.chat.tools import dump_object, read_tool_choice, read_tools
from gateway.api.chat.unsupported import refuse_unsupported
from gateway.api.schemas.base import validate
from gateway.api.schemas.simulate import read_script
from gateway.generation import request as neutral
from gateway.generation.constraint import constraining_field
from gateway.policy.limits import MAX_TEMPLATE_KWARGS_BYTES
from svclib.errors import InvalidRequest, Unsupported

_NAMES: Final = neutral.FieldNames(prompt="messages", logprobs="top_logprobs")
_COMPLETION_NAMES: Final = replace(_NAMES, max_tokens="max_completion_tokens")
_NAMED_AS_A_WHOLE: Final = frozenset({"logit_bias", "metadata", "stop", "stop_token_ids"})
_PLACED_IN_THE_MESSAGE: Final = frozenset({"response_format"})


def read_chat(document: Mapping[str, Any], *, reject_unknown: bool) -> ChatRequest:
    """The request in a document. Raises ``InvalidRequest`` naming the field at fault."""
    fields = validate(ChatCompletion, document, _NAMED_AS_A_WHOLE, _PLACED_IN_THE_MESSAGE)
    refuse_unsupported(document)
    ignored = tuple(fields.unknown())
    request = ChatRequest(_read_generation(fields, document, reject_unknown), _read_stream(fields), ignored)
    if fields.continue_final_message and (constrained_by := constraining_field(request.generation)):
        raise InvalidRequest(
            f"continue_final_message cannot be combined with {constrained_by}",
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
        raise InvalidRequest("top_logprobs requires logprobs: true", param="top_logprobs")
    max_tokens = _read_max_tokens(fields)
    if max_tokens is not None and (fields.min_tokens or 0) > max_tokens:
        raise InvalidRequest(f"min_tokens must be at most max_tokens, which is {max_tokens}", param="min_tokens")
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
            "max_tokens and max_completion_tokens are aliases and must be equal", param="max_completion_tokens"
        )
    return given.pop() if given else None


def _read_stream(fields: ChatCompletion) -> StreamOptions | None:
    options = fields.stream_options
    if not fields.stream:
        if options is not None:
            raise InvalidRequest("stream_options requires stream: true", param="stream_options")
        return None
    if options is None:
        return StreamOptions()
    if options.include_obfuscation:
        raise Unsupported(
            "stream_options.include_obfuscation is not supported", param="stream_options.include_obfuscation"
        )
    return StreamOptions(bool(options.include_usage), bool(options.continuous_usage_stats))


def _read_conversation(
    fields: ChatCompletion, document: Mapping[str, Any], reject_unknown: bool
) -> neutral.Conversation:
    if fields.continue_final_message:
        if fields.add_generation_prompt:
            raise InvalidRequest(
                "add_generation_prompt cannot be combined with continue_final_message", param="add_generation_prompt"
            )
        if fields.messages[-1].role != "assistant":
            raise InvalidRequest(
                "continue_final_message requires the last message to have the role assistant",
                param="continue_final_message",
            )
    kwargs = fields.chat_template_kwargs
    return neutral.Conversation(
        messages=read_messages(fields.messages),
        add_generation_prompt=fields.add_generation_prompt,
        continue_final_message=fields.continue_final_message,
        template_kwargs_json=dump_object(kwargs, "chat_template_kwargs", MAX_TEMPLATE_KWARGS_BYTES) if kwargs else "",
        thinking=read_thinking(document),
        rejects_unread_kwargs=reject_unknown,
    )
