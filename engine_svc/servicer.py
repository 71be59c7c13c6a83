"""The engine over gRPC: protobuf in, dataclasses inside, protobuf out. The only file that knows both."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc

from engine_svc.embedding.servicer import EmbeddingBackend
from engine_svc.execution.runner import RunnerInfo
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.output import RequestOutput
from engine_svc.request import (
    ChoiceOutput,
    Constraint,
    FinishReason,
    PromptLogprobs,
    Request,
    SamplingParams,
    Script,
    Thinking,
    TokenLogprobs,
)
from engine_svc.scheduling.capacity import Capacity
from engine_svc.step_loop import StepLoop
from engine_svc.validation import (
    MAX_SCRIPT_BYTES,
    check_choice_index,
    check_end_tokens,
    check_prompt,
    check_resumed,
    check_sampling,
    check_script,
    check_thinking,
)
from protos.v1 import common_pb2, engine_pb2, engine_pb2_grpc
from svclib.errors import InvalidRequest, ServiceError, Unsupported
from svclib.server import unary
from svclib.session import Call, SessionServer

_DRAWN_SEED_BITS: Final = 53
"""A client that reads JSON numbers as doubles can send such a seed back."""

GenerateCall: TypeAlias = Call[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]


@dataclass(frozen=True, slots=True)
class Backend:
    """A loaded model and the loop that runs it."""

    info: RunnerInfo
    capacity: Capacity
    max_num_seqs: int
    steps: StepLoop
    grammars: GrammarCompiler


class EngineServicer(engine_pb2_grpc.EngineServicer):
    """Serves a backend once it has one: ``attach`` or ``attach_embedding`` comes before the first call."""

    def __init__(self) -> None:
        self._sessions = SessionServer(self._generate, engine_pb2.EngineServerFrame)
        self._backend: Backend
        self._embedding: EmbeddingBackend | None = None

    def attach(self, backend: Backend) -> None:
        """Serve from this backend."""
        self._backend = backend

    def attach_embedding(self, backend: EmbeddingBackend) -> None:
        """Serve from a model that embeds."""
        self._embedding = backend

    async def drain(self) -> None:
        """Refuse new requests, and return when the running ones have ended."""
        await self._sessions.drain()
        if self._embedding is not None:
            await self._embedding.drain()

    async def Session(
        self,
        request_iterator: AsyncIterator[engine_pb2.EngineClientFrame],
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002  # part of the method's shape
    ) -> AsyncIterator[engine_pb2.EngineServerFrame]:
        async for frame in self._sessions.serve(request_iterator):
            yield frame

    @unary
    async def Embed(
        self, request: engine_pb2.EmbedRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> engine_pb2.EmbedResponse:
        if self._embedding is None:
            raise Unsupported(
                "this model generates and does not embed; an engine does one or the other (ENGINE_TASK)", param="model"
            )
        return await self._embedding.embed(request)

    @unary
    async def GetModelInfo(
        self, _request: engine_pb2.ModelInfoRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> engine_pb2.ModelInfo:
        if self._embedding is not None:
            return self._embedding.model_info()
        info, capacity = self._backend.info, self._backend.capacity
        return engine_pb2.ModelInfo(
            model_path=info.model_path,
            model_type=info.model_type,
            max_context_length=capacity.max_model_len,
            vocab_size=info.vocab_size,
            eos_token_ids=info.eos_token_ids,
            simulated=info.simulated,
            dtype=info.dtype,
            block_size=capacity.block_size,
            num_blocks=capacity.num_blocks,
            max_num_seqs=self._backend.max_num_seqs,
            deterministic=info.rows_are_independent,
            tasks=["generate"],
            supports_constraints=self._backend.grammars.is_supported,
        )

    @unary
    async def GetLoads(
        self, _request: engine_pb2.LoadsRequest, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> engine_pb2.Loads:
        if self._embedding is not None:
            return self._embedding.loads()
        loads = self._backend.steps.loads
        return engine_pb2.Loads(
            num_running_reqs=loads.num_running,
            num_waiting_reqs=loads.num_waiting,
            num_free_blocks=loads.num_free_blocks,
            num_blocks=self._backend.capacity.num_blocks,
        )

    async def _generate(self, call: GenerateCall) -> None:
        """One request, from its opening to its last event. Leaving in any way takes it out of the engine."""
        if self._embedding is not None:
            raise Unsupported("this model embeds and does not generate", param="model")
        request = read_request(call.request, self._backend.info, self._backend.capacity)
        request = await self._backend.grammars.attach(request)
        finished: asyncio.Future[ServiceError | None] = asyncio.get_running_loop().create_future()

        def listen(output: RequestOutput) -> None:
            if output.error is None:
                call.emit(to_event(output))
            if output.is_last:
                finished.set_result(output.error)

        group_id = self._backend.steps.submit(request, listen)
        stopping = asyncio.create_task(self._stop_choices(call, request, group_id))
        try:
            await asyncio.wait((finished, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                stopping.result()
            if error := finished.result():
                raise error
        finally:
            stopping.cancel()
            self._backend.steps.abort(group_id)

    async def _stop_choices(self, call: GenerateCall, request: Request, group_id: int) -> None:
        async for message in call:
            for index in message.indices:
                if index >= request.sampling_params.n:
                    raise InvalidRequest(f"there is no choice {index} to stop")
                self._backend.steps.stop_choice(group_id, index)


def read_request(message: engine_pb2.GenerateRequest, info: RunnerInfo, capacity: Capacity) -> Request:
    """The request in a message, complete and within all limits. Raises ``InvalidRequest`` naming what is not."""
    asked = message.sampling_params.max_tokens if message.sampling_params.HasField("max_tokens") else None
    max_tokens = capacity.max_tokens(len(message.input_ids), asked)
    prompt = tuple(message.input_ids)
    check_prompt(prompt, info.vocab_size)
    params = _read_sampling(message.sampling_params, max_tokens)
    check_sampling(params, info.vocab_size)
    output = tuple(message.output_ids)
    check_resumed(output, params, info.vocab_size)
    check_choice_index(message.choice_index, params)
    eos_token_ids = frozenset(message.eos_token_ids or info.eos_token_ids)
    check_end_tokens(eos_token_ids, info.vocab_size, param="eos_token_ids")
    return Request(
        request_id=message.request_id,
        prompt_token_ids=prompt,
        sampling_params=params,
        eos_token_ids=eos_token_ids,
        script=_read_script(message.simulate, info) if message.HasField("simulate") else None,
        arrived_at=time.time(),
        open_ended=asked is None,
        thinking=_read_thinking(message, info.vocab_size) if params.constraint is not None else None,
        output_token_ids=output,
        choice_index=message.choice_index,
    )


def _read_sampling(message: engine_pb2.SamplingParams, max_tokens: int) -> SamplingParams:
    """Apply the defaults that the proto's comments promise; every present value stands, zero too."""
    has = message.HasField
    return SamplingParams(
        temperature=message.temperature if has("temperature") else 1.0,
        top_p=message.top_p if has("top_p") else 1.0,
        top_k=message.top_k if has("top_k") and message.top_k != -1 else 0,
        min_p=message.min_p if has("min_p") else 0.0,
        frequency_penalty=message.frequency_penalty if has("frequency_penalty") else 0.0,
        presence_penalty=message.presence_penalty if has("presence_penalty") else 0.0,
        repetition_penalty=message.repetition_penalty if has("repetition_penalty") else 1.0,
        max_tokens=max_tokens,
        min_tokens=message.min_tokens if has("min_tokens") else 0,
        stop_token_ids=frozenset(message.stop_token_ids),
        ignore_eos=message.ignore_eos if has("ignore_eos") else False,
        n=message.n if has("n") else 1,
        logprobs=message.logprobs if has("logprobs") else None,
        prompt_logprobs=message.prompt_logprobs if has("prompt_logprobs") else None,
        seed=message.seed if has("seed") else secrets.randbits(_DRAWN_SEED_BITS),
        logit_bias=tuple(message.logit_bias.items()),
        constraint=_read_constraint(message),
    )


def _read_constraint(message: engine_pb2.SamplingParams) -> Constraint | None:
    match kind := message.WhichOneof("constraint"):
        case "json_object":
            return Constraint("json_object") if message.json_object else None
        case "choice":
            return Constraint("choice", choices=tuple(message.choice.choices))
        case "json_schema" | "regex" | "grammar":
            return Constraint(kind, text=getattr(message, kind))
    return None


def _read_thinking(message: engine_pb2.GenerateRequest, vocab_size: int) -> Thinking | None:
    """None when the constraint holds from the first token."""
    if message.reasoning_state not in (common_pb2.REASONING_STATE_OPEN, common_pb2.REASONING_STATE_UNDECIDED):
        return None
    is_open = message.reasoning_state == common_pb2.REASONING_STATE_OPEN
    thinking = Thinking(is_open, tuple(message.reasoning_start_token_ids), tuple(message.reasoning_end_token_ids))
    check_thinking(thinking, vocab_size)
    return thinking


def _read_script(message: engine_pb2.SimulatedScript, info: RunnerInfo) -> Script:
    if not info.simulated:
        raise Unsupported("only a simulated model answers from a script", param="simulate")
    if message.ByteSize() > MAX_SCRIPT_BYTES:
        raise InvalidRequest(f"a script can have {MAX_SCRIPT_BYTES} bytes at most", param="simulate")
    script = Script(
        steps=tuple(tuple(step.token_ids) for step in message.steps),
        repeat=message.repeat if message.HasField("repeat") else 1,
        delay=message.delay_ms / 1000.0 if message.HasField("delay_ms") else 0.0,
        finish=_read_finish(message.finish) if message.HasField("finish") else "stop",
    )
    check_script(script, info.vocab_size)
    return script


def _read_finish(text: str) -> FinishReason:
    match text:
        case "stop" | "length":
            return text
    raise InvalidRequest("finish must be `stop` or `length`", param="simulate.finish")


def to_event(output: RequestOutput) -> engine_pb2.GenerateEvent:
    """The event that tells an output which is not an error."""
    event = engine_pb2.GenerateEvent()
    for choice in output.choices:
        if choice.prompt is not None:
            event.input_logprobs.MergeFrom(_input_logprobs(choice.prompt))
        if choice.token_ids or choice.finish_reason is not None:
            _add_chunk(event, choice)
    if (head := output.head) is not None:
        event.prompt_tokens = head.num_prompt_tokens
        event.cached_tokens = head.num_cached_tokens
        event.seed = head.seed
    if (stats := output.stats) is not None:
        event.stats.queue_enter_at = stats.queue_enter_at
        event.stats.prefill_start_at = stats.prefill_start_at
        event.stats.first_token_at = stats.first_token_at
        event.stats.last_token_at = stats.last_token_at
        event.stats.preemptions = stats.num_preemptions
    return event


def _add_chunk(event: engine_pb2.GenerateEvent, choice: ChoiceOutput) -> None:
    chunk = event.chunks.add(index=choice.index, token_ids=choice.token_ids)
    if choice.logprobs:
        chunk.output_logprobs.CopyFrom(_logprobs(choice.token_ids, choice.logprobs))
    if choice.finish_reason is not None:
        chunk.finish_reason = choice.finish_reason
    if choice.matched_token_id is not None:
        chunk.matched_token_id = choice.matched_token_id


def _logprobs(token_ids: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...]) -> common_pb2.OutputLogProbs:
    return common_pb2.OutputLogProbs(
        token_logprobs=[entry.logprob for entry in logprobs],
        token_ids=token_ids,
        top_logprobs=map(_top_logprobs, logprobs),
    )


def _input_logprobs(prompt: PromptLogprobs) -> common_pb2.InputLogProbs:
    return common_pb2.InputLogProbs(
        token_logprobs=[entry.logprob for entry in prompt.logprobs],
        token_ids=prompt.token_ids,
        top_logprobs=map(_top_logprobs, prompt.logprobs),
    )


def _top_logprobs(entry: TokenLogprobs) -> common_pb2.TopLogProbs:
    return common_pb2.TopLogProbs(
        values=[value for _, value in entry.top], token_ids=[token_id for token_id, _ in entry.top]
    )
