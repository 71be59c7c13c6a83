"""The client of an engine: prompts in, output tokens out."""

from __future__ import annotations

from typing import TypeAlias

import grpc

from gateway.generation.constraint import Constraint, Thinking
from gateway.generation.events import Chunk, EngineStats, GenerateEvent, Head
from gateway.generation.prompt import ScriptTokens
from gateway.generation.request import Sampling
from gateway.generation.services import GenerateInput
from gateway.replicas.clients.session_stream import SessionStream
from gateway.replicas.clients.unary import INFO_SECONDS, LOADS_SECONDS, answer
from gateway.replicas.info import EngineInfo, EngineLoads
from protos.v1 import common_pb2, engine_pb2, engine_pb2_grpc
from svclib.session import Opening, SessionClient, SessionLimits, Stream

EngineSession: TypeAlias = SessionClient[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]
EngineStream: TypeAlias = Stream[engine_pb2.GenerateRequest, engine_pb2.StopChoices, engine_pb2.GenerateEvent]


class SessionEngine:
    """An engine with the protocol of engine.proto; see ``EngineClient`` in ``gateway/generation/services.py``."""

    def __init__(self, channel: grpc.aio.Channel, limits: SessionLimits) -> None:
        self._stub = engine_pb2_grpc.EngineStub(channel)
        self._session: EngineSession = SessionClient(
            self._stub.Session, engine_pb2.EngineClientFrame, peer="engine", limits=limits
        )

    async def info(self) -> EngineInfo:
        info = await answer(self._stub.GetModelInfo(engine_pb2.ModelInfoRequest(), timeout=INFO_SECONDS), "engine")
        return EngineInfo(
            model_path=info.model_path,
            dtype=info.dtype,
            max_context_length=info.max_context_length,
            vocab_size=info.vocab_size,
            simulated=info.simulated,
            # An engine that reports no tasks generates.
            generates="generate" in (info.tasks or ("generate",)),
            supports_constraints=info.supports_constraints,
            vocabulary_hash=info.vocabulary_hash,
            kv_cache_dtype=info.kv_cache_dtype,
        )

    def generate(self, work: GenerateInput, opening: Opening) -> SessionGeneration:
        message = engine_pb2.GenerateRequest(
            request_id=opening.request_id,
            input_ids=work.prompt.token_ids,
            sampling_params=_sampling_params(work.sampling, work.n),
            eos_token_ids=work.prompt.eos_token_ids,
            simulate=None if work.script is None else _simulated_script(work.script),
            output_ids=work.output_ids,
            choice_index=work.choice_index or None,
        )
        if work.constraint is not None:
            _constrain(message, work.constraint, work.thinking)
        return SessionGeneration(self._session.open(message, opening))

    async def abort_all(self) -> None:
        await self._session.close()

    async def loads(self) -> EngineLoads:
        loads = await answer(self._stub.GetLoads(engine_pb2.LoadsRequest(), timeout=LOADS_SECONDS), "engine")
        return EngineLoads(loads.num_running_reqs, loads.num_waiting_reqs)

    async def close(self) -> None:
        await self._session.close()


class SessionGeneration(SessionStream[EngineStream]):
    """A request on an engine's session; see ``Generation``."""

    def __init__(self, stream: EngineStream) -> None:
        super().__init__(stream)
        self._ended: set[int] = set()

    def take(self) -> GenerateEvent | None:
        event = self._stream.take()
        if event is None:
            return None
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
    """The API's seed is signed and the engine's unsigned; the 64 bits are the same."""
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
