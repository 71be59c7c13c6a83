"""The gRPC service of tokenizer.proto."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from protos.v1 import common_pb2
from protos.v1 import tokenizer_pb2 as pb
from protos.v1 import tokenizer_pb2_grpc as pb_grpc
from svclib.errors import ContextLengthExceeded, InvalidRequest, Unavailable
from svclib.status import unary
from tokenizer_svc.capabilities import Capabilities
from tokenizer_svc.conversation import Conversation, Message, Tool, ToolCall
from tokenizer_svc.metrics import TokenizerMetrics
from tokenizer_svc.pool import Pool
from tokenizer_svc.prompt_tokenizer import PromptTokenizer, TokenizedPrompt
from tokenizer_svc.reasoning import ReasoningState

MAX_INPUTS: Final = 16_384
"""Maximum inputs of one call."""

_REASONING_STATES: Final = {
    ReasoningState.UNDECIDED: common_pb2.REASONING_STATE_UNDECIDED,
    ReasoningState.OPEN: common_pb2.REASONING_STATE_OPEN,
    ReasoningState.CLOSED: common_pb2.REASONING_STATE_CLOSED,
}

ResultT = TypeVar("ResultT")


class TokenizerServicer(pb_grpc.TokenizerServicer):
    """Serves one tokenizer, which ``use`` sets before the first call."""

    def __init__(self, pool: Pool, metrics: TokenizerMetrics, max_chars: int) -> None:
        self._pool = pool
        self._metrics = metrics
        self._max_chars = max_chars
        self._loaded: PromptTokenizer | None = None

    def use(self, tokenizer: PromptTokenizer) -> None:
        """Serve this tokenizer from now on."""
        self._loaded = tokenizer

    @unary
    async def Render(self, request: pb.RenderRequest, _context: Any) -> pb.RenderResponse:
        with self._metrics.counting_rejections():
            conversation, inputs = _conversation(request), _inputs(request)
            size = conversation.num_chars
            self._check_size(size, "messages")
            self._check_size(sum(map(len, inputs)), "inputs")
            work = partial(self._render, conversation, inputs)
            prompt, outputs = await self._pool.run(work, size + sum(map(len, inputs)))
        self._metrics.observe(prompt)
        return pb.RenderResponse(
            token_ids=prompt.token_ids,
            text=prompt.text,
            eos_token_ids=self._tokenizer.eos_token_ids,
            reasoning_state=_REASONING_STATES[prompt.reasoning_state],
            template_version=prompt.template_version,
            rendered_at=prompt.rendered_at,
            tokenized_at=prompt.tokenized_at,
            ignored_template_kwargs=prompt.ignored_kwargs,
            outputs=[pb.TokenList(token_ids=ids) for ids in outputs],
        )

    @unary
    async def Tokenize(self, request: pb.TokenizeRequest, _context: Any) -> pb.TokenizeResponse:
        with self._metrics.counting_rejections():
            inputs = _inputs(request)
            size = sum(map(len, inputs))
            self._check_size(size, "inputs")
            work = partial(
                self._tokenize,
                inputs,
                add_special_tokens=request.add_special_tokens,
                parse_special_tokens=request.parse_special_tokens,
            )
            outputs = await self._pool.run(work, size)
        return pb.TokenizeResponse(outputs=[pb.TokenList(token_ids=ids) for ids in outputs])

    @unary
    async def Detokenize(self, request: pb.DetokenizeRequest, _context: Any) -> pb.DetokenizeResponse:
        with self._metrics.counting_rejections():
            size = len(request.token_ids)
            self._check_size(size, "token_ids")
            decode = partial(self._tokenizer.detokenize, list(request.token_ids))
            text = await self._pool.run(partial(decode, skip_special_tokens=request.skip_special_tokens), size)
        return pb.DetokenizeResponse(text=text)

    @unary
    async def GetInfo(self, _request: pb.TokenizerInfoRequest, _context: Any) -> pb.TokenizerInfo:
        tokenizer = self._tokenizer
        return pb.TokenizerInfo(
            vocab_size=tokenizer.vocab_size,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_ids=tokenizer.eos_token_ids,
            template_version=tokenizer.template_version,
            capabilities=_capabilities(tokenizer.capabilities),
            tool_parser=tokenizer.tool_format,
            reasoning_parser=tokenizer.reasoning_format,
            reasoning_tags=[
                pb.ReasoningTags(reasoning_parser=name, start_token_ids=tags.start, end_token_ids=tags.end)
                for name, tags in tokenizer.reasoning_tags.items()
            ],
            template_variables=sorted(tokenizer.template_variables),
            vocabulary_hash=tokenizer.vocabulary_hash,
        )

    @property
    def _tokenizer(self) -> PromptTokenizer:
        if self._loaded is None:
            raise Unavailable("the tokenizer is not loaded yet", retry_after=1.0)
        return self._loaded

    def _check_size(self, size: int, param: str) -> None:
        if size > self._max_chars:
            raise ContextLengthExceeded(f"{param} have a size of {size}; the maximum is {self._max_chars}", param=param)

    def _render(
        self, conversation: Conversation, inputs: Sequence[str | bytes]
    ) -> tuple[TokenizedPrompt, list[list[int]]]:
        prompt = self._tokenizer.render(conversation)
        return prompt, self._tokenize(inputs, add_special_tokens=False, parse_special_tokens=True)

    def _tokenize(
        self, inputs: Sequence[str | bytes], *, add_special_tokens: bool, parse_special_tokens: bool
    ) -> list[list[int]]:
        tokenize = partial(
            self._tokenizer.tokenize, add_special_tokens=add_special_tokens, parse_special_tokens=parse_special_tokens
        )
        return [tokenize(value, f"inputs[{index}]") for index, value in enumerate(inputs)]


def _conversation(request: pb.RenderRequest) -> Conversation:
    """Raises ``InvalidRequest`` for a content part without text."""
    return Conversation(
        messages=tuple(_message(message, f"messages[{i}]") for i, message in enumerate(request.messages)),
        tools=tuple(map(_tool, request.tools)),
        add_generation_prompt=_optional(request, "add_generation_prompt", bool),
        continue_final_message=request.continue_final_message,
        template_kwargs=request.chat_template_kwargs_json,
        max_tokens=_optional(request, "max_prompt_tokens", int),
    )


def _inputs(request: pb.RenderRequest | pb.TokenizeRequest) -> list[str | bytes]:
    """Raises ``InvalidRequest`` for too many inputs, and for one without text or bytes."""
    if len(request.inputs) > MAX_INPUTS:
        raise InvalidRequest(f"inputs must have at most {MAX_INPUTS} items", param="inputs")
    return [_input(item, f"inputs[{index}]") for index, item in enumerate(request.inputs)]


def _capabilities(capabilities: Capabilities | None) -> pb.TemplateCapabilities | None:
    """The capabilities that have a field in the contract; None without a chat template."""
    if capabilities is None:
        return None
    names = pb.TemplateCapabilities.DESCRIPTOR.fields_by_name
    return pb.TemplateCapabilities(**{name: getattr(capabilities, name) for name in names})


def _message(message: pb.ChatMessage, param: str) -> Message:
    return Message(
        role=message.role,
        content=_content(message, param),
        name=_optional(message, "name", str),
        tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls),
        tool_call_id=_optional(message, "tool_call_id", str),
        reasoning_content=_optional(message, "reasoning_content", str),
    )


def _content(message: pb.ChatMessage, param: str) -> str | tuple[str, ...] | None:
    match message.WhichOneof("content"):
        case "text":
            return message.text
        case "parts":
            return tuple(_part(part, f"{param}.content[{i}]") for i, part in enumerate(message.parts.parts))
        case None:
            return None


def _part(part: pb.ContentPart, param: str) -> str:
    if part.WhichOneof("part") != "text":
        raise InvalidRequest(f"{param} must have text", param=f"{param}.text")
    return part.text


def _tool(tool: common_pb2.ToolDefinition) -> Tool:
    return Tool(
        name=tool.name,
        description=_optional(tool, "description", str),
        parameters=_optional(tool, "parameters_json", str),
        strict=_optional(tool, "strict", bool),
    )


def _optional(message: Any, field: str, kind: Callable[[Any], ResultT]) -> ResultT | None:
    """An optional field of a protobuf message; None if it is absent."""
    return kind(getattr(message, field)) if message.HasField(field) else None


def _input(item: pb.TokenizeInput, param: str) -> str | bytes:
    match item.WhichOneof("input"):
        case "text":
            return item.text
        case "raw":
            return item.raw
        case None:
            raise InvalidRequest(f"{param} must be a text or raw bytes", param=param)
