"""The backend of a model that generates: a call becomes a request of the step loop, its outputs become events."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from engine_svc.backends.generate_event import to_event
from engine_svc.backends.generate_request import read_request
from engine_svc.backends.interface import GenerateCall
from engine_svc.engine import Engine
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.output import RequestOutput
from engine_svc.request import Request
from engine_svc.runners.interface import RunnerInfo
from engine_svc.scheduling.capacity import Capacity
from engine_svc.step_loop import StepLoop
from protos.v1 import engine_pb2
from svclib.errors import InvalidRequest, ServiceError, Unsupported

GenerationLoop: TypeAlias = StepLoop[Request, RequestOutput]


@dataclass(frozen=True, slots=True)
class GenerationBackend:
    """See ``engine_svc.backends.interface.Backend``. ``engine`` is owned by the thread of ``steps``."""

    info: RunnerInfo
    capacity: Capacity
    max_num_seqs: int
    engine: Engine
    steps: GenerationLoop
    grammars: GrammarCompiler

    def start(self) -> None:
        self.steps.start()
        self.grammars.start()

    async def drain(self) -> None:
        await self.steps.drain()

    async def stop(self) -> None:
        self.grammars.close()
        await self.steps.stop()

    async def generate(self, call: GenerateCall) -> None:
        """Returning or raising in any way aborts the request in the engine."""
        request = read_request(call.request, self.info, self.capacity)
        request = await self.grammars.attach(request)
        finished: asyncio.Future[ServiceError | None] = asyncio.get_running_loop().create_future()

        def listen(output: RequestOutput) -> None:
            if output.error is None:
                call.emit(to_event(output))
            if output.is_last:
                finished.set_result(output.error)

        group_id = self.steps.submit(request, listen)
        stopping = asyncio.create_task(self._stop_choices(call, request, group_id))
        try:
            await asyncio.wait((finished, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                stopping.result()
            if error := finished.result():
                raise error
        finally:
            stopping.cancel()
            self.steps.abort(group_id)

    async def embed(self, _message: engine_pb2.EmbedRequest) -> engine_pb2.EmbedResponse:
        raise Unsupported(
            "generation model: embeddings are not supported; an engine serves one task (ENGINE_TASK)", param="model"
        )

    def model_info(self) -> engine_pb2.ModelInfo:
        info, capacity = self.info, self.capacity
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
            max_num_seqs=self.max_num_seqs,
            deterministic=info.batch_invariant,
            tasks=["generate"],
            supports_constraints=self.grammars.is_supported,
            vocabulary_hash=self.grammars.vocabulary_hash,
            kv_cache_dtype=info.cache_dtype,
        )

    def loads(self) -> engine_pb2.Loads:
        loads = self.steps.loads
        return engine_pb2.Loads(
            num_running_reqs=loads.num_running,
            num_waiting_reqs=loads.num_waiting,
            num_free_blocks=loads.num_free_blocks,
            num_blocks=self.capacity.num_blocks,
        )

    async def _stop_choices(self, call: GenerateCall, request: Request, group_id: int) -> None:
        async for message in call:
            for index in message.indices:
                if index >= request.sampling_params.n:
                    raise InvalidRequest(f"choice index must be below n ({request.sampling_params.n}), not {index}")
                self.steps.command(partial(self.engine.stop_choice, group_id, index))
