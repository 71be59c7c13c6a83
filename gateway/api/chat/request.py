"""A chat completion request that was read: what to generate, and how to answer."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from gateway.api.answer import AnswerWriter
from gateway.api.chat.stream import ChunkWriter, StreamOptions
from gateway.api.chat.whole import BodyWriter
from gateway.api.chat.wire import Identity
from gateway.generation.record import RequestRecord
from gateway.generation.request import GenerationRequest


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """See ``ApiRequest``."""

    generation: GenerationRequest
    stream: StreamOptions | None = None
    """None: the answer is not streamed."""
    ignored: tuple[str, ...] = ()

    @property
    def is_stream(self) -> bool:
        return self.stream is not None

    def writer(self, record: RequestRecord) -> AnswerWriter:
        if self.stream is not None:
            return ChunkWriter(self._identity(record), self.stream, record, self.generation.n)
        with_logprobs = self.generation.sampling.logprobs is not None
        return BodyWriter(self._identity(record), record, self.generation.n, with_logprobs=with_logprobs)

    def _identity(self, record: RequestRecord) -> Identity:
        return Identity(
            id=f"chatcmpl-{secrets.token_hex(12)}",
            created=int(record.request_received_at),
            model=self.generation.model,
            system_fingerprint=record.fingerprint,
        )
