"""Services whose behaviour a test writes, including wrong behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import grpc

from protos.v1 import (
    common_pb2,
    detokenizer_pb2,
    detokenizer_pb2_grpc,
    engine_pb2,
    engine_pb2_grpc,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
)
from svclib.errors import Unsupported
from svclib.session import Call, SessionServer
from svclib.status import unary

GenerateCall: TypeAlias = Call[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]
FormatCall: TypeAlias = Call[detokenizer_pb2.FormatRequest, detokenizer_pb2.FormatInput, detokenizer_pb2.FormatEvent]

CONTEXT = 256
VOCABULARY = 259
EOS = 258


def head(prompt_tokens: int = 5, cached_tokens: int = 0, seed: int = 7) -> engine_pb2.GenerateEvent:
    """The first event of a generation."""
    return engine_pb2.GenerateEvent(prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, seed=seed)


def tokens(text: str, *, index: int = 0, finish: str = "") -> engine_pb2.GenerateEvent:
    """Output of one choice, one token per byte."""
    chunk = engine_pb2.GenerateChunk(index=index, token_ids=text.encode(), finish_reason=finish)
    return engine_pb2.GenerateEvent(chunks=[chunk])


async def say_hello(call: GenerateCall) -> None:
    """The behaviour of a correct engine."""
    call.emit(head())
    for index in range(call.request.sampling_params.n):
        call.emit(tokens("hello", index=index))
        call.emit(tokens("", index=index, finish="length"))


class ScriptedEngine(engine_pb2_grpc.EngineServicer):
    """An engine that runs ``generate`` for each request."""

    def __init__(self, generate: Callable[[GenerateCall], Awaitable[None]] = say_hello) -> None:
        self.generate = generate
        self.calls: list[engine_pb2.GenerateRequest] = []
        self.sessions = SessionServer(self._generate, engine_pb2.EngineServerFrame)
        self.info = engine_pb2.ModelInfo(
            model_path="scripted", model_type="simulated", max_context_length=CONTEXT, vocab_size=VOCABULARY,
            simulated=True, dtype="none", supports_constraints=True,
        )  # fmt: skip

    def add_to(self, server: grpc.aio.Server) -> None:
        engine_pb2_grpc.add_EngineServicer_to_server(self, server)

    async def Session(self, frames: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for frame in self.sessions.serve(frames):
            yield frame

    @unary
    async def Embed(self, request: engine_pb2.EmbedRequest, context: Any) -> engine_pb2.EmbedResponse:
        raise Unsupported("not scripted")

    @unary
    async def GetModelInfo(self, request: engine_pb2.ModelInfoRequest, context: Any) -> engine_pb2.ModelInfo:
        return self.info

    @unary
    async def GetLoads(self, request: engine_pb2.LoadsRequest, context: Any) -> engine_pb2.Loads:
        return engine_pb2.Loads(num_running_reqs=self.sessions.num_open)

    async def _generate(self, call: GenerateCall) -> None:
        self.calls.append(call.request)
        await self.generate(call)


async def spell(call: FormatCall) -> None:
    """The behaviour of a correct detokenizer, with bytes as tokens."""
    seen = 0
    async for message in call:
        event = detokenizer_pb2.FormatEvent()
        seen += len(message.token_ids)
        if message.token_ids:
            event.deltas.add(content=bytes(message.token_ids).decode())
        if message.finish_reason:
            event.finish_reason, event.completion_tokens = message.finish_reason, seen
        call.emit(event)
        if message.finish_reason:
            return


class ScriptedDetokenizer(detokenizer_pb2_grpc.DetokenizerServicer):
    """A detokenizer that runs ``format`` for each choice."""

    def __init__(self, format: Callable[[FormatCall], Awaitable[None]] = spell) -> None:
        self.format = format
        self.calls: list[detokenizer_pb2.FormatRequest] = []
        self.sessions = SessionServer(self._format, detokenizer_pb2.DetokenizerServerFrame)
        self.info = detokenizer_pb2.DetokenizerInfo(
            vocab_size=VOCABULARY, tool_parsers=["hermes"], reasoning_parsers=["think"],
            call_syntaxes=[detokenizer_pb2.CallSyntax(
                tool_parser="hermes", opening="<call>", before_name="(", before_arguments=")", closing="</call>",
                separator=";",
            )],
        )  # fmt: skip

    def add_to(self, server: grpc.aio.Server) -> None:
        detokenizer_pb2_grpc.add_DetokenizerServicer_to_server(self, server)

    async def Session(self, frames: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for frame in self.sessions.serve(frames):
            yield frame

    @unary
    async def GetInfo(
        self, request: detokenizer_pb2.DetokenizerInfoRequest, context: Any
    ) -> detokenizer_pb2.DetokenizerInfo:
        return self.info

    async def _format(self, call: FormatCall) -> None:
        self.calls.append(call.request)
        await self.format(call)


class ScriptedTokenizer(tokenizer_pb2_grpc.TokenizerServicer):
    """A tokenizer whose prompts are the bytes of all texts. ``before_render`` may wait, count or raise."""

    def __init__(self, before_render: Callable[[], Awaitable[None]] | None = None) -> None:
        self.before_render = before_render
        self.calls: list[tokenizer_pb2.RenderRequest] = []
        self.ignored_kwargs: list[str] = []
        self.reasoning_state = common_pb2.REASONING_STATE_UNDECIDED
        self.cancelled = asyncio.Event()
        self.info = tokenizer_pb2.TokenizerInfo(
            vocab_size=VOCABULARY, template_version="v1", tool_parser="hermes", reasoning_parser="think",
            capabilities=tokenizer_pb2.TemplateCapabilities(tools=True),
            reasoning_tags=[tokenizer_pb2.ReasoningTags(
                reasoning_parser="think", start_token_ids=b"<t>", end_token_ids=b"</t>"
            )],
        )  # fmt: skip

    def add_to(self, server: grpc.aio.Server) -> None:
        tokenizer_pb2_grpc.add_TokenizerServicer_to_server(self, server)

    @unary
    async def Render(self, request: tokenizer_pb2.RenderRequest, context: Any) -> tokenizer_pb2.RenderResponse:
        self.calls.append(request)
        try:
            if self.before_render is not None:
                await self.before_render()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return tokenizer_pb2.RenderResponse(
            token_ids="".join(message.text for message in request.messages).encode(),
            eos_token_ids=[EOS], template_version="v1", rendered_at=1.0, tokenized_at=2.0,
            ignored_template_kwargs=self.ignored_kwargs, reasoning_state=self.reasoning_state,
            outputs=self.encode(request.inputs),
        )  # fmt: skip

    @unary
    async def Tokenize(self, request: tokenizer_pb2.TokenizeRequest, context: Any) -> tokenizer_pb2.TokenizeResponse:
        return tokenizer_pb2.TokenizeResponse(outputs=self.encode(request.inputs))

    def encode(self, inputs: Sequence[tokenizer_pb2.TokenizeInput]) -> list[tokenizer_pb2.TokenList]:
        """One token per byte."""
        return [tokenizer_pb2.TokenList(token_ids=each.raw or each.text.encode()) for each in inputs]

    @unary
    async def Detokenize(
        self, request: tokenizer_pb2.DetokenizeRequest, context: Any
    ) -> tokenizer_pb2.DetokenizeResponse:
        return tokenizer_pb2.DetokenizeResponse(text=bytes(request.token_ids).decode())

    @unary
    async def GetInfo(self, request: tokenizer_pb2.TokenizerInfoRequest, context: Any) -> tokenizer_pb2.TokenizerInfo:
        return self.info
