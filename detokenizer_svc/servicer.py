"""The gRPC service of detokenizer.proto."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple, TypeAlias, cast

from detokenizer_svc.deltas import Content, Delta, Reasoning
from detokenizer_svc.formatter import EngineEnd, FormatSpec, Formatted, Formatter
from detokenizer_svc.metrics import DetokenizerMetrics
from detokenizer_svc.reasoning import REASONING_PARSERS
from detokenizer_svc.stage import FinishReason, ReasoningState, Tool
from detokenizer_svc.tools import CALL_SYNTAXES, TOOL_PARSERS
from detokenizer_svc.tools.call_syntax import CallSyntax
from detokenizer_svc.vocabulary import Vocabulary
from protos.v1 import common_pb2
from protos.v1 import detokenizer_pb2 as pb
from protos.v1 import detokenizer_pb2_grpc as pb_grpc
from svclib.session import Call, SessionServer
from svclib.status import unary

FormatCall: TypeAlias = Call[pb.FormatRequest, pb.FormatInput, pb.FormatEvent]

BATCH_TOKENS: Final = 512
"""Maximum tokens formatted before other choices run."""

_STATES: Final = {
    common_pb2.REASONING_STATE_UNSPECIFIED: ReasoningState.UNDECIDED,
    common_pb2.REASONING_STATE_UNDECIDED: ReasoningState.UNDECIDED,
    common_pb2.REASONING_STATE_OPEN: ReasoningState.OPEN,
    common_pb2.REASONING_STATE_CLOSED: ReasoningState.CLOSED,
}


class BrokenContract(Exception):
    """The gateway sent something that detokenizer.proto does not allow."""


class DetokenizerServicer(pb_grpc.DetokenizerServicer):
    """Serves one vocabulary, which ``use`` sets before the first call."""

    def __init__(self, metrics: DetokenizerMetrics) -> None:
        self.sessions = SessionServer(self._format, pb.DetokenizerServerFrame)
        self._metrics = metrics
        self._vocabulary = Vocabulary.of({})
        metrics.watch_running(lambda: self.sessions.num_open)

    def use(self, vocabulary: Vocabulary) -> None:
        """Serve this vocabulary from now on."""
        self._vocabulary = vocabulary

    async def Session(self, frames: AsyncIterator[Any], _context: Any) -> AsyncIterator[Any]:
        async for frame in self.sessions.serve(frames):
            yield frame

    @unary
    async def GetInfo(self, _request: pb.DetokenizerInfoRequest, _context: Any) -> pb.DetokenizerInfo:
        return pb.DetokenizerInfo(
            vocab_size=len(self._vocabulary),
            tool_parsers=sorted(TOOL_PARSERS),
            reasoning_parsers=sorted(REASONING_PARSERS),
            call_syntaxes=[self._call_syntax(name, syntax) for name, syntax in CALL_SYNTAXES.items()],
            vocabulary_hash=self._vocabulary.hash,
        )

    def _call_syntax(self, parser: str, syntax: CallSyntax) -> pb.CallSyntax:
        texts: dict[str, str] = asdict(syntax)
        special = {
            spelling: token_id
            for token_id, spelling in self._vocabulary.special.items()
            if any(spelling in text for text in texts.values())
        }
        return pb.CallSyntax(tool_parser=parser, **texts, special_token_ids=special)

    async def _format(self, call: FormatCall) -> None:
        """Formats one choice, from its first token to its end."""
        formatter = Formatter(self._vocabulary, _spec(call.request))
        try:
            async for message in call:
                for batch in _batches(message):
                    if self._step(formatter, batch, call):
                        return
                    if batch.is_more_to_come:
                        await asyncio.sleep(0)
        finally:
            if formatter.num_parse_failures:
                self._metrics.parse_failures.labels(call.request.tool_parser).inc(formatter.num_parse_failures)

    def _step(self, formatter: Formatter, batch: _Batch, call: FormatCall) -> bool:
        """Format a batch of tokens. Returns whether the choice has ended."""
        formatted = formatter.feed(batch.token_ids, batch.end)
        self._metrics.tokens.inc(formatted.num_tokens)
        event = _event(formatted)
        if batch.logprobs is not None:
            positions = range(batch.start, batch.start + formatted.num_tokens)
            event.logprobs.extend(self._logprob(batch.logprobs, position) for position in positions)
        if event.deltas or event.logprobs or formatted.ending:
            self._metrics.events.inc()
            call.emit(event)
        if formatted.ending:
            self._metrics.finished.labels(formatted.ending.finish_reason).inc()
        return formatted.ending is not None

    def _logprob(self, logprobs: common_pb2.OutputLogProbs, position: int) -> pb.TokenLogProb:
        top = logprobs.top_logprobs[position]
        return pb.TokenLogProb(
            sampled=self._alternative(logprobs.token_ids[position], logprobs.token_logprobs[position]),
            top=[self._alternative(*pair) for pair in zip(top.token_ids, top.values, strict=True)],
        )

    def _alternative(self, token_id: int, logprob: float) -> pb.TokenAlternative:
        """An alternative outside the vocabulary has no text; models often have more logits than tokens."""
        if token_id >= len(self._vocabulary):
            return pb.TokenAlternative(logprob=logprob)
        return pb.TokenAlternative(
            token_bytes=self._vocabulary.text_by_id[token_id],
            token=self._vocabulary.text_of(token_id),
            logprob=logprob,
        )


class _Batch(NamedTuple):
    """Some of a message's tokens, from index ``start`` on; ``logprobs`` are those of the whole message."""

    token_ids: Sequence[int]
    start: int
    logprobs: common_pb2.OutputLogProbs | None
    end: EngineEnd | None
    is_more_to_come: bool


def _batches(message: pb.FormatInput) -> Iterator[_Batch]:
    """A message in batches. Raises ``BrokenContract``."""
    token_ids = list(message.token_ids)
    logprobs = message.output_logprobs if message.HasField("output_logprobs") else None
    if logprobs and not len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(token_ids):
        raise BrokenContract("output_logprobs must have one entry for each token in token_ids")
    end = _end(message)
    for start in range(0, max(len(token_ids), 1), BATCH_TOKENS):
        more = start + BATCH_TOKENS < len(token_ids)
        yield _Batch(token_ids[start : start + BATCH_TOKENS], start, logprobs, None if more else end, more)


def _end(message: pb.FormatInput) -> EngineEnd | None:
    reason = message.finish_reason
    if not reason:
        return None
    if reason not in ("stop", "length"):
        raise BrokenContract(f"finish_reason must be 'stop' or 'length', not {reason!r}")
    if message.ended_by_token and not message.token_ids:
        raise BrokenContract("ended_by_token requires at least one token in token_ids")
    return EngineEnd(cast(FinishReason, reason), message.ended_by_token)


def _spec(request: pb.FormatRequest) -> FormatSpec:
    return FormatSpec(
        prompt_tail_ids=tuple(request.prompt_tail_ids),
        stop=tuple(request.stop),
        reasoning_parser=request.reasoning_parser,
        reasoning_state=_STATES[request.reasoning_state],
        tool_parser=request.tool_parser,
        tools=tuple(Tool(tool.name, tool.parameters_json) for tool in request.tools),
        skip_special_tokens=request.skip_special_tokens if request.HasField("skip_special_tokens") else True,
        min_tokens=request.min_tokens,
        named_function=request.named_function,
        calls_after_reasoning=request.calls_after_reasoning,
    )


def _event(formatted: Formatted) -> pb.FormatEvent:
    event = pb.FormatEvent()
    for delta in formatted.deltas:
        _write(event.deltas.add(), delta)
    if ending := formatted.ending:
        event.finish_reason = ending.finish_reason
        event.completion_tokens = ending.completion_tokens
        event.reasoning_tokens = ending.reasoning_tokens
        if ending.matched_stop is not None:
            event.matched_stop = ending.matched_stop
    return event


def _write(message: pb.Delta, delta: Delta) -> None:
    if isinstance(delta, Content):
        message.content = delta.text
    elif isinstance(delta, Reasoning):
        message.reasoning = delta.text
    else:
        message.tool_call.index = delta.index
        message.tool_call.id = delta.id
        message.tool_call.name = delta.name
        message.tool_call.arguments = delta.arguments
