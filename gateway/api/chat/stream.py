"""The writer of a streamed answer: its ``data:`` events, as bytes.

For each choice: a chunk with the role, chunks with deltas, a chunk with the finish reason. Then the usage, if
requested, and ``[DONE]``. After a fault, one event with ``error`` and nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from gateway.api.chat.wire import Identity, wire_logprobs, wire_usage
from gateway.api.sse import DONE, HEADERS, PING, error_event
from gateway.generation.events import (
    ContentDelta,
    Delta,
    Event,
    Finish,
    Output,
    ReasoningDelta,
    Signal,
    TokenLogProb,
    ToolCallDelta,
)
from gateway.generation.record import RequestRecord
from gateway.http.errors import Problem


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """``include_usage``: usage in a chunk of its own. ``continuous_usage``: usage so far in every chunk."""

    include_usage: bool = False
    continuous_usage: bool = False


class ChunkWriter:
    """Writes the chunks of one answer."""

    headers = HEADERS

    def __init__(self, identity: Identity, options: StreamOptions, record: RequestRecord, choices: int) -> None:
        self._choices = choices
        self._options = options
        self._record = record
        head = {
            "id": identity.id,
            "object": "chat.completion.chunk",
            "created": identity.created,
            "model": identity.model,
            "system_fingerprint": identity.system_fingerprint,
        }
        self._head = b"data: " + orjson.dumps(head).removesuffix(b"}")
        usage = b',"usage":null' if options.include_usage else b""
        self._plain_end = b',"logprobs":null,"finish_reason":null}]' + usage + b"}\n\n"

    def opening(self) -> bytes:
        """The first chunk of each choice."""
        return b"".join(self._chunk(index, {"role": "assistant", "content": ""}) for index in range(self._choices))

    def events(self, batch: Sequence[Event]) -> bytes:
        """The chunks of a batch; empty if it has no output."""
        return b"".join(
            b"".join(self._output(event)) if isinstance(event, Output) else _signal(event) for event in batch
        )

    def closing(self) -> bytes:
        """The usage, if requested, and ``[DONE]``."""
        if not self._options.include_usage:
            return DONE
        return self._event({"choices": [], "usage": wire_usage(self._record)}) + DONE

    def error(self, problem: Problem) -> bytes:
        return error_event(problem)

    def _output(self, output: Output) -> Iterator[bytes]:
        logprobs = output.formatted.logprobs
        for delta in join(output.formatted.deltas):
            yield self._chunk(output.index, _wire_delta(delta), logprobs)
            logprobs = []
        if output.formatted.finish is not None:
            yield self._chunk(output.index, {}, logprobs, output.formatted.finish)
        elif logprobs:
            yield self._chunk(output.index, {"content": ""}, logprobs)

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: Sequence[TokenLogProb] = (),
        finish: Finish | None = None,
    ) -> bytes:
        if not (logprobs or finish or self._options.continuous_usage):
            # The fast path, for nearly every chunk.
            start = b',"choices":[{"index":%d,"delta":' % index
            return b"".join((self._head, start, orjson.dumps(delta), self._plain_end))
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": wire_logprobs(logprobs) if logprobs else None,
            "finish_reason": None if finish is None else finish.reason,
        }
        rest: dict[str, Any] = {"choices": [choice]}
        if self._options.continuous_usage:
            rest["usage"] = wire_usage(self._record)
        elif self._options.include_usage:
            rest["usage"] = None
        if finish is not None:
            rest["seed"] = self._record.seed
        return self._event(rest)

    def _event(self, rest: dict[str, Any]) -> bytes:
        return b"".join((self._head, b",", orjson.dumps(rest)[1:], b"\n\n"))


def join(deltas: Sequence[Delta]) -> Iterator[Delta]:
    """The deltas with adjacent ones of one kind merged; the first delta of a call, with its name, is not merged.

    Takes linear time: a slow reader gets many at once.
    """
    if len(deltas) < 2:
        yield from deltas
        return
    run: list[Delta] = []
    for delta in deltas:
        if run and not _continues(run[0], delta):
            yield _joined(run)
            run = []
        run.append(delta)
    if run:
        yield _joined(run)


def _continues(first: Delta, delta: Delta) -> bool:
    match first, delta:
        case (ContentDelta(), ContentDelta()) | (ReasoningDelta(), ReasoningDelta()):
            return True
        case ToolCallDelta(index, ""), ToolCallDelta(same, ""):
            return index == same
    return False


def _joined(run: Sequence[Delta]) -> Delta:
    first = run[0]
    if isinstance(first, ToolCallDelta):
        return replace(first, arguments="".join(each.arguments for each in run if isinstance(each, ToolCallDelta)))
    return replace(first, text="".join(each.text for each in run if not isinstance(each, ToolCallDelta)))


def _wire_delta(delta: Delta) -> dict[str, Any]:
    match delta:
        case ContentDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text, "reasoning": text}
        case ToolCallDelta(index, "", _, arguments):
            return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}
        case ToolCallDelta(index, call_id, name, arguments):
            function = {"name": name, "arguments": arguments}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}


def _signal(signal: Signal) -> bytes:
    return PING if signal is Signal.PING else b""
