"""Conversations in, prompts out."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from gateway.generation.peers import Prompt, ReasoningState, ReasoningTags, TokenizerInfo
from gateway.generation.request import ChatRequest, Message
from gateway.replicas.clients.tools import tool_definitions
from gateway.replicas.clients.unary import INFO_SECONDS, UnaryCalls, answer
from protos.v1 import tokenizer_pb2, tokenizer_pb2_grpc


class TokenizerClient:
    """A tokenizer replica. Methods raise the ``ServiceError`` that the tokenizer or the connection gave."""

    def __init__(self, channel: grpc.aio.Channel, timeout: float) -> None:
        self._stub = tokenizer_pb2_grpc.TokenizerStub(channel)
        self._timeout = timeout
        self._calls = UnaryCalls("tokenizer")

    async def info(self) -> TokenizerInfo:
        """The loaded tokenizer."""
        call = self._stub.GetInfo(tokenizer_pb2.TokenizerInfoRequest(), timeout=INFO_SECONDS)
        info = await answer(call, "tokenizer")
        return TokenizerInfo(
            template_version=info.template_version,
            shows_tools=info.capabilities.tools,
            knows_thinking=info.capabilities.thinking,
            tool_parser=info.tool_parser,
            reasoning_parser=info.reasoning_parser,
            reasoning_tags=tuple((tags.reasoning_parser, _reasoning_tags(tags)) for tags in info.reasoning_tags),
            template_variables=frozenset(info.template_variables),
            vocab_size=info.vocab_size,
        )

    async def render(self, request: ChatRequest, request_id: str, max_tokens: int) -> Prompt:
        """The conversation as a prompt; one of more than ``max_tokens`` is refused."""
        message = tokenizer_pb2.RenderRequest(
            request_id=request_id,
            messages=[_chat_message(turn) for turn in request.messages],
            tools=tool_definitions(request.tools),
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            chat_template_kwargs_json=request.template_kwargs_json,
            max_prompt_tokens=max_tokens,
        )
        found = await self._calls.answer(self._stub.Render(message, timeout=self._timeout))
        return Prompt(
            token_ids=found.token_ids,
            eos_token_ids=found.eos_token_ids,
            reasoning_state=ReasoningState(found.reasoning_state),
            template_version=found.template_version,
            rendered_at=found.rendered_at,
            tokenized_at=found.tokenized_at,
            ignored_kwargs=found.ignored_template_kwargs,
        )

    async def tokenize(self, inputs: Sequence[str | bytes]) -> list[Sequence[int]]:
        """The tokens of each input by itself. The spelling of a special token is that token.

        Texts go as bytes, so that no vocabulary puts a space before them.
        """
        message = tokenizer_pb2.TokenizeRequest(parse_special_tokens=True)
        for each in inputs:
            message.inputs.add(raw=each.encode() if isinstance(each, str) else each)
        found = await self._calls.answer(self._stub.Tokenize(message, timeout=self._timeout))
        return [output.token_ids for output in found.outputs]

    async def give_up(self) -> None:
        """End what runs, with ``PeerLost``."""
        self._calls.give_up()

    async def close(self) -> None:
        """Nothing is held between calls."""


def _chat_message(turn: Message) -> tokenizer_pb2.ChatMessage:
    message = tokenizer_pb2.ChatMessage(
        role=turn.role,
        name=turn.name,
        tool_calls=[
            tokenizer_pb2.ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in turn.tool_calls
        ],
        tool_call_id=turn.tool_call_id,
        reasoning_content=turn.reasoning,
    )
    if isinstance(turn.content, str):
        message.text = turn.content
    elif turn.content is not None:
        message.parts.parts.extend(tokenizer_pb2.ContentPart(text=text) for text in turn.content)
    return message


def _reasoning_tags(tags: tokenizer_pb2.ReasoningTags) -> ReasoningTags:
    return ReasoningTags(tuple(tags.start_token_ids), tuple(tags.end_token_ids))
