"""Parsing a stream of chat chunks, with assertions on the rules for chunks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

DONE = "[DONE]"


@dataclass(slots=True)
class Choice:
    content: str = ""
    reasoning: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    logprobs: list[Any] = field(default_factory=list)
    finish_reason: str | None = None
    saw_content: bool = False


@dataclass(slots=True)
class Answer:
    """A collected stream. ``usages``: of the chunks with choices; ``usage``: of the last chunk, without choices."""

    choices: dict[int, Choice] = field(default_factory=dict)
    usages: list[Any] = field(default_factory=list)
    usage: Any = None
    error: Any = None
    done: bool = False
    seed: int | None = None
    pings: int = 0


def data_of(text: str) -> list[Any]:
    """The parsed values of all data lines, ``[DONE]`` unchanged, without comments."""
    assert text.endswith("\n\n") or not text
    events = [event for event in text.split("\n\n") if event and not event.startswith(":")]
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    payloads = [event.removeprefix("data: ") for event in events]
    return [payload if payload == DONE else json.loads(payload) for payload in payloads]


def collect(text: str) -> Answer:
    """The answer in a complete stream."""
    answer = Answer(pings=text.count(": ping\n\n"))
    identities = set()
    for data in data_of(text):
        assert not answer.done, "something after [DONE]"
        assert answer.error is None, "something after an error"
        if data == DONE:
            answer.done = True
        elif "error" in data:
            answer.error = data["error"]
        else:
            identities.add((data["id"], data["object"], data["created"], data["model"], data["system_fingerprint"]))
            _collect_chunk(data, answer)
    assert len(identities) <= 1
    return answer


def _collect_chunk(data: dict[str, Any], answer: Answer) -> None:
    assert answer.usage is None, "a chunk after the usage"
    if not data["choices"]:
        answer.usage = data["usage"]
        return
    answer.usages.append(data.get("usage"))
    for chunk in data["choices"]:
        first = chunk["index"] not in answer.choices
        choice = answer.choices.setdefault(chunk["index"], Choice())
        assert choice.finish_reason is None, "a chunk after the last one of its choice"
        if first:
            assert chunk["delta"] == {"role": "assistant", "content": ""}
        else:
            assert "role" not in chunk["delta"]
            _collect_delta(chunk["delta"], choice)
        choice.logprobs += chunk["logprobs"]["content"] if chunk["logprobs"] else []
        choice.finish_reason = chunk["finish_reason"]
        if choice.finish_reason is not None:
            answer.seed = data["seed"]


def _collect_delta(delta: dict[str, Any], choice: Choice) -> None:
    choice.content += delta.get("content", "")
    choice.saw_content |= bool(delta.get("content"))
    assert delta.get("reasoning") == delta.get("reasoning_content")
    choice.reasoning += delta.get("reasoning", "")
    for piece in delta.get("tool_calls", ()):
        if piece["index"] not in choice.calls:
            assert piece["type"] == "function"
            choice.calls[piece["index"]] = {"id": piece["id"], "name": piece["function"]["name"], "arguments": ""}
        else:
            assert set(piece) == {"index", "function"}
            assert set(piece["function"]) == {"arguments"}
        choice.calls[piece["index"]]["arguments"] += piece["function"]["arguments"]


def undo_chunks(body: bytes) -> bytes:
    """A decoded body with ``transfer-encoding: chunked``."""
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        data, body = data + body[:length], body[length + 2 :]
    return data
