"""gRPC to the three services: dataclasses in, protobuf on the wire, dataclasses out. Protobuf stops here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message as Protobuf
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.chat import ChatRequest, Message, Sampling, Tool
from gateway.peers import (
    CallSyntax,
    Chunk,
    Constraint,
    ContentDelta,
    Delta,
    DetokenizerInfo,
    EngineInfo,
    EngineStats,
    Finish,
    Formatted,
    GenerateEvent,
    GenerateOptions,
    Head,
    Prompt,
    ReasoningDelta,
    ReasoningState,
    ReasoningTags,
    ScriptTokens,
    Thinking,
    TokenAlternative,
    TokenizerInfo,
    TokenLogProb,
    ToolCallDelta,
)
from protos.v1 import (
    common_pb2,
    detokenizer_pb2,
    detokenizer_pb2_grpc,
    engine_pb2,
    engine_pb2_grpc,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
)
from svclib.session import Opening, SessionClient, Stream
from svclib.status import from_rpc_error

INFO_SECONDS: Final = 5.0
"""Longest time for a service to describe itself."""
PROMPT_TAIL_TOKENS: Final = 8
"""More than enough for a character that the prompt began."""

EngineSession: TypeAlias = SessionClient[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]
EngineStream: TypeAlias = Stream[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]
FormatSession: TypeAlias = SessionClient[
    detokenizer_pb2.FormatRequest, detokenizer_pb2.FormatInput, detokenizer_pb2.FormatEvent
]
FormatStream: TypeAlias = Stream[
    detokenizer_pb2.FormatRequest, detokenizer_pb2.FormatInput, detokenizer_pb2.FormatEvent
]

AnswerT = TypeVar("AnswerT", bound=Protobuf)
StreamT = TypeVar("StreamT", bound=Stream[Any, Any, Any])


async def watch_health(channel: grpc.aio.Channel) -> AsyncGenerator[bool, None]:
    """Whether the peer serves, now and at each change. Ends, or raises ``AioRpcError``, when the peer is lost."""
    call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
    try:
        async for answer in call:
            yield answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        call.cancel()


class TokenizerClient:
    """A tokenizer replica. Methods raise the ``ServiceError`` that the tokenizer or the connection gave."""

    def __init__(self, channel: grpc.aio.Channel, timeout: float) -> None:
        self._stub = tokenizer_pb2_grpc.TokenizerStub(channel)
        self._timeout = timeout

    async def info(self) -> TokenizerInfo:
        """The loaded tokenizer."""
        call = self._stub.GetInfo(tokenizer_pb2.TokenizerInfoRequest(), timeout=INFO_SECONDS)
        info = await _answer(call, "tokenizer")
        return TokenizerInfo(
            template_version=info.template_version,
            shows_tools=info.capabilities.tools,
            knows_thinking=info.capabilities.thinking,
            tool_parser=info.tool_parser,
            reasoning_parser=info.reasoning_parser,
            reasoning_tags=tuple((tags.reasoning_parser, _reasoning_tags(tags)) for tags in info.reasoning_tags),
        )

    async def render(self, request: ChatRequest, request_id: str) -> Prompt:
        """The conversation as a prompt."""
        message = tokenizer_pb2.RenderRequest(
            request_id=request_id,
            messages=[_chat_message(turn) for turn in request.messages],
            tools=_tools(request.tools),
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            chat_template_kwargs_json=request.template_kwargs_json,
        )
        answer = await _answer(self._stub.Render(message, timeout=self._timeout), "tokenizer")
        return Prompt(
            token_ids=answer.token_ids,
            eos_token_ids=answer.eos_token_ids,
            reasoning_state=ReasoningState(answer.reasoning_state),
            template_version=answer.template_version,
            rendered_at=answer.rendered_at,
            tokenized_at=answer.tokenized_at,
            ignored_kwargs=answer.ignored_template_kwargs,
        )

    async def tokenize(self, inputs: Sequence[str | bytes]) -> list[Sequence[int]]:
        """The tokens of each input by itself. The spelling of a special token is that token.

        Texts go as bytes, so that no vocabulary puts a space before them.
        """
        message = tokenizer_pb2.TokenizeRequest(parse_special_tokens=True)
        for each in inputs:
            message.inputs.add(raw=each.encode() if isinstance(each, str) else each)
        answer = await _answer(self._stub.Tokenize(message, timeout=self._timeout), "tokenizer")
        return [output.token_ids for output in answer.outputs]

    async def close(self) -> None:
        """Nothing is held between calls."""


class SessionEngine:
    """An engine that speaks engine.proto; see ``EngineClient``."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = engine_pb2_grpc.EngineStub(channel)
        self._session: EngineSession = SessionClient(self._stub.Session, engine_pb2.EngineClientFrame, peer="engine")

    async def info(self) -> EngineInfo:
        info = await _answer(self._stub.GetModelInfo(engine_pb2.ModelInfoRequest(), timeout=INFO_SECONDS), "engine")
        return EngineInfo(
            model_path=info.model_path,
            dtype=info.dtype,
            max_context_length=info.max_context_length,
            vocab_size=info.vocab_size,
            simulated=info.simulated,
            # An engine that does not say what it can be asked for generates.
            generates="generate" in (info.tasks or ("generate",)),
            supports_constraints=info.supports_constraints,
        )

    def generate(
        self, request: ChatRequest, prompt: Prompt, options: GenerateOptions, opening: Opening
    ) -> SessionGeneration:
        message = engine_pb2.GenerateRequest(
            request_id=opening.request_id,
            input_ids=prompt.token_ids,
            sampling_params=_sampling_params(request.sampling, request.n),
            eos_token_ids=prompt.eos_token_ids,
            simulate=None if options.script is None else _simulated_script(options.script),
        )
        if options.constraint is not None:
            _constrain(message, options.constraint, options.thinking)
        return SessionGeneration(self._session.open(message, opening))

    async def close(self) -> None:
        await self._session.close()


class DetokenizerClient:
    """A detokenizer replica."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = detokenizer_pb2_grpc.DetokenizerStub(channel)
        self._session: FormatSession = SessionClient(
            self._stub.Session, detokenizer_pb2.DetokenizerClientFrame, peer="detokenizer"
        )

    async def info(self) -> DetokenizerInfo:
        """The known formats. Raises ``ServiceError``."""
        call = self._stub.GetInfo(detokenizer_pb2.DetokenizerInfoRequest(), timeout=INFO_SECONDS)
        info = await _answer(call, "detokenizer")
        return DetokenizerInfo(
            frozenset(info.tool_parsers),
            frozenset(info.reasoning_parsers),
            tuple((syntax.tool_parser, _call_syntax(syntax)) for syntax in info.call_syntaxes),
        )

    def format(
        self,
        request: ChatRequest,
        prompt: Prompt,
        *,
        tool_parser: str,
        reasoning_parser: str,
        reasoning_state: ReasoningState,
        calls_behind_thinking: bool,
        opening: Opening,
    ) -> list[Formatting]:
        """A formatting for each choice; each begins when its context is entered. An empty parser is none."""
        choice = request.tool_choice
        message = detokenizer_pb2.FormatRequest(
            request_id=opening.request_id,
            prompt_tail_ids=prompt.token_ids[-PROMPT_TAIL_TOKENS:],
            stop=request.stop,
            reasoning_parser=reasoning_parser,
            reasoning_state=common_pb2.ReasoningState.ValueType(reasoning_state),
            tool_parser=tool_parser,
            tools=_tools(request.tools),
            skip_special_tokens=request.skip_special_tokens,
            min_tokens=request.sampling.min_tokens,
            named_function=choice.allowed[0] if choice.mode == "named" and choice.allowed else "",
            calls_behind_thinking=calls_behind_thinking,
        )
        return [Formatting(self._session.open(message, opening)) for _ in range(request.n)]

    async def close(self) -> None:
        """End what runs."""
        await self._session.close()


class _OnSession(Generic[StreamT]):
    """A request on a session: it runs as long as its context, and leaving the context before the end cancels it."""

    def __init__(self, stream: StreamT) -> None:
        self._stream = stream

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self


class SessionGeneration(_OnSession[EngineStream]):
    """A request on an engine's session; see ``Generation``."""

    def __init__(self, stream: EngineStream) -> None:
        super().__init__(stream)
        self._ended: set[int] = set()

    async def __anext__(self) -> GenerateEvent:
        event = await self._stream.__anext__()
        chunks = [_chunk(chunk) for chunk in event.chunks]
        self._ended.update(chunk.index for chunk in chunks if chunk.finish_reason)
        return GenerateEvent(
            chunks,
            _head(event) if event.HasField("prompt_tokens") else None,
            _engine_stats(event.stats) if event.HasField("stats") else None,
        )

    def stop_choice(self, index: int) -> None:
        if index not in self._ended:
            self._stream.send(engine_pb2.StopChoices(indices=[index]))


class Formatting(_OnSession[FormatStream]):
    """One choice on a detokenizer's session: chunks are sent in, and formatted output is iterated over."""

    async def __anext__(self) -> Formatted:
        event = await self._stream.__anext__()
        return Formatted(
            [_delta(delta) for delta in event.deltas],
            [_token_logprob(entry) for entry in event.logprobs],
            _finish(event) if event.finish_reason else None,
        )

    def send(self, chunk: Chunk) -> None:
        """Never blocks; has no effect once the choice has ended."""
        self._stream.send(
            detokenizer_pb2.FormatInput(
                token_ids=chunk.token_ids,
                output_logprobs=chunk.logprobs,
                finish_reason=chunk.finish_reason,
                ended_by_token=chunk.ended_by_token,
            )
        )


async def _answer(call: Awaitable[AnswerT], peer: str) -> AnswerT:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, peer=peer) from None


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


def _tools(tools: Sequence[Tool]) -> list[common_pb2.ToolDefinition]:
    return [
        common_pb2.ToolDefinition(
            name=tool.name, description=tool.description, parameters_json=tool.parameters_json, strict=tool.strict
        )
        for tool in tools
    ]


def _reasoning_tags(tags: tokenizer_pb2.ReasoningTags) -> ReasoningTags:
    return ReasoningTags(tuple(tags.start_token_ids), tuple(tags.end_token_ids))


def _call_syntax(syntax: detokenizer_pb2.CallSyntax) -> CallSyntax:
    return CallSyntax(
        syntax.opening,
        syntax.before_name,
        syntax.before_arguments,
        syntax.closing,
        syntax.separator,
        tuple(syntax.special_token_ids.items()),
    )


def _constrain(message: engine_pb2.GenerateRequest, constraint: Constraint, thinking: Thinking | None) -> None:
    params = message.sampling_params
    match constraint.kind:
        case "json_object":
            params.json_object = True
        case "json_schema":
            params.json_schema = constraint.text
        case "grammar":
            params.grammar = constraint.text
    if thinking is not None:
        message.reasoning_state = common_pb2.ReasoningState.ValueType(thinking.state)
        message.reasoning_start_token_ids.extend(thinking.tags.start_token_ids)
        message.reasoning_end_token_ids.extend(thinking.tags.end_token_ids)


def _sampling_params(sampling: Sampling, n: int) -> engine_pb2.SamplingParams:
    return engine_pb2.SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        repetition_penalty=sampling.repetition_penalty,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        n=n,
        logprobs=sampling.logprobs,
        seed=None if sampling.seed is None else sampling.seed % 2**64,
        logit_bias=sampling.logit_bias,
    )


def _simulated_script(script: ScriptTokens) -> engine_pb2.SimulatedScript:
    message = engine_pb2.SimulatedScript(repeat=script.repeat, delay_ms=script.delay_ms, finish=script.finish)
    for step in script.steps:
        message.steps.add().token_ids.extend(step)
    return message


def _head(event: engine_pb2.GenerateEvent) -> Head:
    """The API's seed is signed, the engine's is not; the 64 bits are the same."""
    seed = event.seed - 2**64 if event.seed >= 2**63 else event.seed
    return Head(event.prompt_tokens, event.cached_tokens, seed)


def _chunk(chunk: engine_pb2.GenerateChunk) -> Chunk:
    return Chunk(
        chunk.index,
        chunk.token_ids,
        chunk.output_logprobs if chunk.HasField("output_logprobs") else None,
        chunk.finish_reason,
        chunk.HasField("matched_token_id"),
    )


def _engine_stats(stats: engine_pb2.RequestStats) -> EngineStats:
    return EngineStats(
        queue_enter_at=stats.queue_enter_at,
        prefill_start_at=stats.prefill_start_at,
        first_token_at=stats.first_token_at,
        last_token_at=stats.last_token_at,
        preemptions=stats.preemptions,
    )


def _delta(delta: detokenizer_pb2.Delta) -> Delta:
    match delta.WhichOneof("delta"):
        case "content":
            return ContentDelta(delta.content)
        case "reasoning":
            return ReasoningDelta(delta.reasoning)
        case _:
            call = delta.tool_call
            return ToolCallDelta(call.index, call.id, call.name, call.arguments)


def _token_logprob(entry: detokenizer_pb2.TokenLogProb) -> TokenLogProb:
    sampled = _alternative(entry.sampled)
    return TokenLogProb(sampled.token, sampled.logprob, sampled.bytes, [_alternative(each) for each in entry.top])


def _alternative(each: detokenizer_pb2.TokenAlternative) -> TokenAlternative:
    return TokenAlternative(each.token, each.logprob, list(each.token_bytes) or None)


def _finish(event: detokenizer_pb2.FormatEvent) -> Finish:
    return Finish(event.finish_reason, event.completion_tokens, event.reasoning_tokens)
