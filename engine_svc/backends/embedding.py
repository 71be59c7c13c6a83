"""The backend of a model that embeds: protobuf in, dataclasses inside, protobuf out."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TypeAlias

from engine_svc.backends.interface import GenerateCall
from engine_svc.embedding.interface import EmbedderInfo, EmbeddingOutput, EmbeddingParams, EmbeddingRequest, Vector
from engine_svc.embedding.validation import check_pooling, check_request
from engine_svc.step_loop import StepLoop
from protos.v1 import engine_pb2
from svclib.errors import ServiceError, Unsupported

EmbeddingLoop: TypeAlias = StepLoop[EmbeddingRequest, EmbeddingOutput]


class EmbeddingBackend:
    """See ``engine_svc.backends.interface.Backend``. Large messages are converted off the event loop."""

    def __init__(self, info: EmbedderInfo, steps: EmbeddingLoop) -> None:
        self._info = info
        self._steps = steps

    def start(self) -> None:
        self._steps.start()

    async def drain(self) -> None:
        await self._steps.drain()

    async def stop(self) -> None:
        await self._steps.stop()

    async def generate(self, _call: GenerateCall) -> None:
        raise Unsupported("embedding model: generation is not supported", param="model")

    async def embed(self, message: engine_pb2.EmbedRequest) -> engine_pb2.EmbedResponse:
        request = await asyncio.to_thread(read_request, message, self._info)
        vectors = await self._embed(request)
        return await asyncio.to_thread(to_response, request, vectors)

    def model_info(self) -> engine_pb2.ModelInfo:
        info = self._info
        return engine_pb2.ModelInfo(
            model_path=info.model_path,
            model_type=info.model_type,
            max_context_length=info.max_model_len,
            vocab_size=info.vocab_size,
            dtype=info.dtype,
            tasks=["embed"],
        )

    def loads(self) -> engine_pb2.Loads:
        """Counts requests in place of sequences."""
        loads = self._steps.loads
        return engine_pb2.Loads(num_running_reqs=loads.num_running, num_waiting_reqs=loads.num_waiting)

    async def _embed(self, request: EmbeddingRequest) -> list[Vector]:
        """One vector for each text, in order. Cancellation removes the rest of the request from the queue."""
        future: asyncio.Future[list[Vector]] = asyncio.get_running_loop().create_future()
        group_id = self._steps.submit(request, partial(_resolve, future))
        try:
            return await future
        finally:
            self._steps.abort(group_id)


def _resolve(future: asyncio.Future[list[Vector]], output: EmbeddingOutput) -> None:
    if future.done():
        return
    if isinstance(output.outcome, ServiceError):
        future.set_exception(output.outcome)
    else:
        future.set_result(output.outcome)


def read_request(message: engine_pb2.EmbedRequest, info: EmbedderInfo) -> EmbeddingRequest:
    """Read and validate a message. Raises ``InvalidRequest`` naming the invalid field."""
    has = message.HasField
    params = EmbeddingParams(
        pooling=check_pooling(message.pooling) if has("pooling") else None,
        normalize=message.normalize if has("normalize") else True,
        dimensions=message.dimensions if has("dimensions") else None,
    )
    texts = tuple(tuple(text.input_ids) for text in message.inputs)
    request = EmbeddingRequest(message.request_id, texts, params)
    check_request(request, info)
    return request


def to_response(request: EmbeddingRequest, vectors: list[Vector]) -> engine_pb2.EmbedResponse:
    """One vector for each text; there is at least one."""
    response = engine_pb2.EmbedResponse(embedding_dim=len(vectors[0]))
    for text, vector in zip(request.inputs, vectors, strict=True):
        response.embeddings.add(values=vector.tolist(), prompt_tokens=len(text))
    return response
