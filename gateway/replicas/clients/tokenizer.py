"""The client of a tokenizer: conversations in, prompts out."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from gateway.generation.prompt import Prompt, ReasoningState, ReasoningTags
from gateway.generation.request import Conversation, Message, Tool
from gateway.replicas.clients.tools import tool_definitions
from gateway.replicas.clients.unary import INFO_SECONDS, UnaryCalls, answer
from gateway.replicas.info import TokenizerInfo
from protos.v1 import tokenizer_pb2, tokenizer_pb2_grpc


class TokenizerClient:
    """A tokenizer replica. Methods raise the ``ServiceError`` of the tokenizer or of the connection."""

    def __init__(self, channel: grpc.aio.Channel, timeout: float) -> None:
        self._stub = tokenizer_pb2_grpc.TokenizerStub(channel)
        self._timeout = timeout
        self._calls = UnaryCalls("tokenizer")

    async def info(self) -> TokenizerInfo:
        """The description of the loaded tokenizer."""
        call = self._stub.GetInfo(tokenizer_pb2.TokenizerInfoRequest(), timeout=INFO_SECONDS)
        info = await answer(call, "tokenizer")
        return TokenizerInfo(
            template_version=info.template_version,
            template_supports_tools=info.capabilities.tools,
            template_supports_thinking=info.capabilities.reasoning,
            tool_parser=info.tool_parser,
            reasoning_parser=info.reasoning_parser,
            reasoning_tags=tuple((tags.reasoning_parser, _reasoning_tags(tags)) for tags in info.reasoning_tags),
            template_variables=frozenset(info.template_variables),
            vocab_size=info.vocab_size,
            eos_token_ids=tuple(info.eos_token_ids),
            vocabulary_hash=info.vocabulary_hash,
        )

    async def render(
        self,
        conversation: Conversation,
        tools: Sequence[Tool],
        script: Sequence[str | bytes],
        request_id: str,
        max_tokens: int,
    ) -> Prompt:
        """Render a conversation, and tokenise the steps of a script. A prompt beyond ``max_tokens`` is refused."""
        message = tokenizer_pb2.RenderRequest(
            request_id=request_id,
            messages=[_chat_message(turn) for turn in conversation.messages],
            tools=tool_definitions(tools),
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            chat_template_kwargs_json=conversation.template_kwargs_json,
            max_prompt_tokens=max_tokens,
            inputs=map(_step, script),
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
            script=[output.token_ids for output in found.outputs],
        )

    async def tokenize(self, text: str) -> Sequence[int]:
        """Tokenise a prompt, with the special tokens that start one. Special tokens in the text are plain text."""
        (token_ids,) = await self._tokenize(
            tokenizer_pb2.TokenizeRequest(inputs=[tokenizer_pb2.TokenizeInput(text=text)], add_special_tokens=True)
        )
        return token_ids

    async def tokenize_script(self, steps: Sequence[str | bytes]) -> Sequence[Sequence[int]]:
        """Tokenise each step on its own. The text of a special token becomes that token."""
        return await self._tokenize(tokenizer_pb2.TokenizeRequest(inputs=map(_step, steps), parse_special_tokens=True))

    async def _tokenize(self, message: tokenizer_pb2.TokenizeRequest) -> list[Sequence[int]]:
        found = await self._calls.answer(self._stub.Tokenize(message, timeout=self._timeout))
        return [output.token_ids for output in found.outputs]

    async def abort_all(self) -> None:
        """End all calls in flight with ``PeerLost``."""
        self._calls.abort_all()

    async def close(self) -> None:
        """Nothing is held between calls."""


def _step(step: str | bytes) -> tokenizer_pb2.TokenizeInput:
    """Texts are sent as bytes, so that no tokenizer puts a space before them."""
    return tokenizer_pb2.TokenizeInput(raw=step.encode() if isinstance(step, str) else step)


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
