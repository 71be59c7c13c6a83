"""The writer of an answer that is not streamed: it collects the events of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.api.chat.wire import Identity, wire_logprobs, wire_usage
from gateway.generation.events import ContentDelta, Delta, Event, Output, ReasoningDelta, TokenLogProb, ToolCallDelta
from gateway.generation.record import RequestRecord
from gateway.http.errors import Problem


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)

    def wire(self) -> dict[str, Any]:
        """One of the API's ``tool_calls``."""
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(slots=True)
class _Choice:
    """The output of one choice so far."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)
    logprobs: list[TokenLogProb] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, delta: Delta) -> None:
        match delta:
            case ContentDelta(text):
                self.content.append(text)
            case ReasoningDelta(text):
                self.reasoning.append(text)
            case ToolCallDelta(index, call_id, name, arguments):
                self.calls.setdefault(index, _Call(call_id, name)).arguments.append(arguments)

    def message(self) -> dict[str, Any]:
        """The API's ``message``. Content is null only if empty and there are calls or reasoning instead."""
        content = "".join(self.content)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if not content and (self.calls or self.reasoning):
            message["content"] = None
        if self.reasoning:
            message["reasoning_content"] = message["reasoning"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = [call.wire() for _, call in sorted(self.calls.items())]
        return message


class BodyWriter:
    """Collects the events of one answer."""

    headers = ((b"content-type", b"application/json"),)

    def __init__(self, identity: Identity, record: RequestRecord, choices: int, *, with_logprobs: bool) -> None:
        self._identity = identity
        self._record = record
        self._choices = [_Choice() for _ in range(choices)]
        self._with_logprobs = with_logprobs

    def opening(self) -> bytes:
        return b""

    def events(self, batch: Sequence[Event]) -> bytes:
        for event in batch:
            if isinstance(event, Output):
                self._add(event)
        return b""

    def _add(self, output: Output) -> None:
        choice = self._choices[output.index]
        for delta in output.formatted.deltas:
            choice.add(delta)
        choice.logprobs += output.formatted.logprobs
        if output.formatted.finish is not None:
            choice.finish_reason = output.formatted.finish.reason

    def closing(self) -> bytes:
        """The answer's JSON."""
        answer = {
            "id": self._identity.id,
            "object": "chat.completion",
            "created": self._identity.created,
            "model": self._identity.model,
            "system_fingerprint": self._identity.system_fingerprint,
            "choices": [self._wire_choice(index, choice) for index, choice in enumerate(self._choices)],
            "usage": wire_usage(self._record),
            "seed": self._record.seed,
        }
        return orjson.dumps(answer)

    def error(self, problem: Problem) -> bytes:
        return problem.body

    def _wire_choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        return {
            "index": index,
            "message": choice.message(),
            "logprobs": wire_logprobs(choice.logprobs) if self._with_logprobs else None,
            "finish_reason": choice.finish_reason,
        }
