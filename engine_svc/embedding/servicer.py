"""What the engine's calls mean for a model that embeds: protobuf in, dataclasses inside, protobuf out."""

from __future__ import annotations

import asyncio

from engine_svc.embedding.interface import EmbedderInfo, EmbeddingParams, EmbeddingRequest, Vector
from engine_svc.embedding.loop import EmbeddingLoop
from engine_svc.embedding.validation import check_pooling, check_request
from protos.v1 import engine_pb2


class EmbeddingBackend:
    """A loaded model and the loop that runs it. Large messages are read and written off the event loop."""

    def __init__(self, loop: EmbeddingLoop) -> None:
        self._loop = loop

    async def embed(self, message: engine_pb2.EmbedRequest) -> engine_pb2.EmbedResponse:
        request = await asyncio.to_thread(read_request, message, self._loop.info)
        vectors = await self._loop.embed(request)
        return await asyncio.to_thread(to_response, request, vectors)

    def model_info(self) -> engine_pb2.ModelInfo:
        info = self._loop.info
        return engine_pb2.ModelInfo(
            model_path=info.model_path,
            model_type=info.model_type,
            max_context_length=info.max_model_len,
            vocab_size=info.vocab_size,
            dtype=info.dtype,
            tasks=["embed"],
        )

    def loads(self) -> engine_pb2.Loads:
        """Requests in place of sequences."""
        loads = self._loop.loads
        return engine_pb2.Loads(num_running_reqs=loads.num_running, num_waiting_reqs=loads.num_waiting)

    async def drain(self) -> None:
        """Refuse new requests, and return when the running ones have ended."""
        await self._loop.drain()


def read_request(message: engine_pb2.EmbedRequest, info: EmbedderInfo) -> EmbeddingRequest:
    """The request in a message, within all limits. Raises ``InvalidRequest`` naming what is not."""
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
    """One vector for each text; there is one at least."""
    response = engine_pb2.EmbedResponse(embedding_dim=len(vectors[0]))
    for text, vector in zip(request.inputs, vectors, strict=True):
        response.embeddings.add(values=vector.tolist(), prompt_tokens=len(text))
    return response
