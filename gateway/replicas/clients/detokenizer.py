"""The client of a detokenizer: output tokens in; text, reasoning and tool calls out."""

from __future__ import annotations

from typing import TypeAlias

import grpc

from gateway.generation.call_grammar import CallSyntax
from gateway.generation.events import (
    Chunk,
    ContentDelta,
    Delta,
    Finish,
    Formatted,
    ReasoningDelta,
    TokenAlternative,
    TokenLogProb,
    ToolCallDelta,
)
from gateway.generation.services import FormatInput
from gateway.replicas.clients.session_stream import SessionStream
from gateway.replicas.clients.tools import tool_definitions
from gateway.replicas.clients.unary import INFO_SECONDS, answer
from gateway.replicas.info import DetokenizerInfo
from protos.v1 import common_pb2, detokenizer_pb2, detokenizer_pb2_grpc
from svclib.session import Opening, SessionClient, SessionLimits, Stream

FormatSession: TypeAlias = SessionClient[
    detokenizer_pb2.FormatRequest, detokenizer_pb2.FormatInput, detokenizer_pb2.FormatEvent
]
FormatStream: TypeAlias = Stream[
    detokenizer_pb2.FormatRequest, detokenizer_pb2.FormatInput, detokenizer_pb2.FormatEvent
]


class DetokenizerClient:
    """A detokenizer replica."""

    def __init__(self, channel: grpc.aio.Channel, limits: SessionLimits) -> None:
        self._stub = detokenizer_pb2_grpc.DetokenizerStub(channel)
        self._session: FormatSession = SessionClient(
            self._stub.Session,
            detokenizer_pb2.DetokenizerClientFrame,
            peer="detokenizer",
            limits=limits,
        )

    async def info(self) -> DetokenizerInfo:
        """The supported formats. Raises ``ServiceError``."""
        call = self._stub.GetInfo(detokenizer_pb2.DetokenizerInfoRequest(), timeout=INFO_SECONDS)
        info = await answer(call, "detokenizer")
        return DetokenizerInfo(
            frozenset(info.tool_parsers),
            frozenset(info.reasoning_parsers),
            tuple((syntax.tool_parser, _call_syntax(syntax)) for syntax in info.call_syntaxes),
            info.vocab_size,
            info.vocabulary_hash,
        )

    def format(self, work: FormatInput, opening: Opening) -> SessionFormatting:
        """The formatting of one choice."""
        message = detokenizer_pb2.FormatRequest(
            request_id=opening.request_id,
            prompt_tail_ids=work.prompt_tail_ids,
            stop=work.stop,
            reasoning_parser=work.reasoning_parser,
            reasoning_state=common_pb2.ReasoningState.ValueType(work.reasoning_state),
            tool_parser=work.tool_parser,
            tools=tool_definitions(work.tools),
            skip_special_tokens=work.skip_special_tokens,
            min_tokens=work.min_tokens,
            named_function=work.named_function,
            calls_after_reasoning=work.calls_after_reasoning,
        )
        return SessionFormatting(self._session.open(message, opening))

    async def abort_all(self) -> None:
        """End all requests in flight with ``PeerLost``; the next request connects again."""
        await self._session.close()

    async def close(self) -> None:
        """End all requests in flight."""
        await self._session.close()


class SessionFormatting(SessionStream[FormatStream]):
    """One choice on a detokenizer's session; see ``Formatting`` in ``gateway/generation/services.py``."""

    def take(self) -> Formatted | None:
        event = self._stream.take()
        if event is None:
            return None
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


def _call_syntax(syntax: detokenizer_pb2.CallSyntax) -> CallSyntax:
    return CallSyntax(
        syntax.opening,
        syntax.before_name,
        syntax.before_arguments,
        syntax.closing,
        syntax.separator,
        tuple(syntax.special_token_ids.items()),
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
