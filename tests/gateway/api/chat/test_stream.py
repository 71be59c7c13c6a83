"""Streamed and whole answers are equal, however the output was cut."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.api.chat.stream import ChunkWriter, StreamOptions, join
from gateway.api.chat.whole import BodyWriter
from gateway.api.chat.wire import Identity
from gateway.api.sse import error_event
from gateway.generation.events import (
    ContentDelta,
    Delta,
    Event,
    Finish,
    Formatted,
    Output,
    ReasoningDelta,
    Signal,
    TokenAlternative,
    TokenLogProb,
    ToolCallDelta,
)
from gateway.generation.record import RequestRecord
from gateway.http.errors import Problem
from svclib.errors import PeerLost
from tests.gateway.sse import DONE, Answer, collect, data_of

IDENTITY = Identity("chatcmpl-1", 17, "org/model", "fp_1")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
logprobs = st.builds(
    TokenLogProb,
    texts,
    st.floats(-9999, 0),
    st.none() | st.lists(st.integers(0, 255), min_size=1, max_size=3),
    st.lists(st.builds(TokenAlternative, texts, st.floats(-9999, 0), st.none()), max_size=2),
)


@st.composite
def deltas(draw: st.DrawFn, calls: list[int]) -> list[Delta]:
    """Random deltas of one choice; ``calls`` are the indices of started calls."""
    made: list[Delta] = []
    for kind in draw(st.lists(st.sampled_from(["content", "reasoning", "begin", "go on"]), max_size=4)):
        match kind:
            case "content":
                made.append(ContentDelta(draw(texts)))
            case "reasoning":
                made.append(ReasoningDelta(draw(texts)))
            case "begin":
                made.append(ToolCallDelta(len(calls), f"call_{len(calls)}", "name", draw(texts)))
                calls.append(len(calls))
            case "go on" if calls:
                made.append(ToolCallDelta(draw(st.sampled_from(calls)), "", "", draw(texts)))
    return made


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, list[list[Event]]]:
    """A number of choices and their output in batches; the last output of a choice ends it."""
    choices = draw(st.integers(1, 3))
    events: list[Event] = [Signal.STARTED]
    calls: dict[int, list[int]] = {index: [] for index in range(choices)}
    for index in draw(st.lists(st.integers(0, choices - 1), max_size=12)):
        formatted = Formatted(draw(deltas(calls[index])), draw(st.lists(logprobs, max_size=2)), None)
        events += draw(st.sampled_from([[Output(index, formatted)], [Signal.PING, Output(index, formatted)]]))
    for index in range(choices):
        finish = Finish(draw(st.sampled_from(["stop", "length", "tool_calls"])), draw(st.integers(0, 9)), 0)
        events.append(
            Output(index, Formatted(draw(deltas(calls[index])), draw(st.lists(logprobs, max_size=1)), finish))
        )
    cuts = sorted(draw(st.sets(st.integers(1, len(events)), max_size=5)) | {len(events)})
    return choices, [events[start:end] for start, end in pairwise([0, *cuts])]


def record_of(choices: int, batches: list[list[Event]]) -> RequestRecord:
    record = RequestRecord("req_1")
    record.begin(choices)
    record.prompt_tokens, record.cached_tokens, record.seed = 11, 4, -7
    for event in (event for batch in batches for event in batch):
        if isinstance(event, Output) and event.formatted.finish is not None:
            record.note_finish(event.index, event.formatted.finish)
    return record


def written(choices: int, batches: list[list[Event]], options: StreamOptions) -> str:
    writer = ChunkWriter(IDENTITY, options, record_of(choices, batches), choices)
    pieces = [writer.opening(), *(writer.events(batch) for batch in batches), writer.closing()]
    return b"".join(pieces).decode()


def stream(choices: int, batches: list[list[Event]], options: StreamOptions) -> Answer:
    return collect(written(choices, batches, options))


def stream_data(choices: int, batches: list[list[Event]], options: StreamOptions) -> list[Any]:
    return data_of(written(choices, batches, options))


def answer(choices: int, batches: list[list[Event]]) -> Any:
    writer = BodyWriter(IDENTITY, record_of(choices, batches), choices, with_logprobs=True)
    assert [writer.opening(), *map(writer.events, batches)] == [b""] * (1 + len(batches))
    return json.loads(writer.closing())


@given(runs())
def test_stream_and_answer_are_equal(run: tuple[int, list[list[Event]]]) -> None:
    streamed, whole = stream(*run, StreamOptions(include_usage=True)), answer(*run)
    assert streamed.done
    assert streamed.usage == whole["usage"]
    assert streamed.seed == whole["seed"] == -7
    assert sorted(streamed.choices) == [choice["index"] for choice in whole["choices"]]
    for choice in whole["choices"]:
        seen, message = streamed.choices[choice["index"]], choice["message"]
        assert seen.finish_reason == choice["finish_reason"]
        assert seen.content == (message["content"] or "")
        assert seen.reasoning == message.get("reasoning_content", "") == message.get("reasoning", "")
        assert seen.logprobs == choice["logprobs"]["content"]
        assert [seen.calls[index] for index in sorted(seen.calls)] == [
            {"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())
        ]


@given(runs())
def test_usage_only_where_requested(run: tuple[int, list[list[Event]]]) -> None:
    plain = stream(*run, StreamOptions())
    assert (plain.usage, set(plain.usages)) == (None, {None})
    asked = stream(*run, StreamOptions(include_usage=True))
    assert asked.usage["total_tokens"] == asked.usage["prompt_tokens"] + asked.usage["completion_tokens"]
    assert set(asked.usages) == {None}
    everywhere = stream(*run, StreamOptions(continuous_usage=True))
    assert everywhere.usage is None
    assert all(usage["prompt_tokens"] == 11 for usage in everywhere.usages)


@given(runs())
def test_include_usage_adds_the_field_to_every_chunk(run: tuple[int, list[list[Event]]]) -> None:
    """As in OpenAI's API: null in all chunks but the last. Clients with a fixed schema need the key."""
    *chunks, last, done = stream_data(*run, StreamOptions(include_usage=True))
    assert done == DONE
    assert chunks
    assert all("usage" in chunk and chunk["usage"] is None for chunk in chunks)
    assert (last["choices"], last["usage"]["prompt_tokens"]) == ([], 11)
    assert not any("usage" in chunk for chunk in stream_data(*run, StreamOptions())[:-1])


@given(st.lists(st.sampled_from(["content", "reasoning"])), st.data())
def test_joined_deltas_keep_the_text(kinds: list[str], data: st.DataObject) -> None:
    made: list[Delta] = [
        ContentDelta(data.draw(texts)) if kind == "content" else ReasoningDelta(data.draw(texts)) for kind in kinds
    ]
    joined = list(join(made))
    for kind in (ContentDelta, ReasoningDelta):
        assert "".join(delta.text for delta in joined if isinstance(delta, kind)) == "".join(
            delta.text for delta in made if isinstance(delta, kind)
        )
    assert all(type(left) is not type(right) for left, right in pairwise(joined))


def test_only_deltas_of_one_call_are_joined() -> None:
    first, more = ToolCallDelta(0, "a", "f", "{"), ToolCallDelta(0, "", "", "}")
    second = ToolCallDelta(1, "b", "g", "{}")
    assert list(join([first, more, more, second])) == [first, ToolCallDelta(0, "", "", "}}"), second]
    assert list(join([first, second, more])) == [first, second, more]
    assert list(join([])) == []


def test_only_adjacent_deltas_are_joined() -> None:
    begun, more = ToolCallDelta(0, "a", "f", "{"), ToolCallDelta(0, "", "", "}")
    deltas: list[Delta] = [ContentDelta("x"), ReasoningDelta("y"), begun, ContentDelta("z"), more, more]
    assert list(join(deltas)) == [*deltas[:4], ToolCallDelta(0, "", "", "}}")]


def output(*deltas: Delta, finish: Finish | None = None, logprobs: tuple[TokenLogProb, ...] = ()) -> Output:
    return Output(0, Formatted(list(deltas), list(logprobs), finish))


def body(*outputs: Output) -> Any:
    return answer(1, [list(outputs)])["choices"][0]


DONE_AT_ONCE = Finish("stop", 1, 0)
CALL = ToolCallDelta(0, "a", "f", "{}")


def test_content_is_null_only_with_calls_or_reasoning() -> None:
    assert body(output(finish=DONE_AT_ONCE))["message"] == {"role": "assistant", "content": "", "refusal": None}
    called = body(output(CALL, finish=DONE_AT_ONCE))["message"]
    assert called["content"] is None
    assert called["tool_calls"] == [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    thought = body(output(ReasoningDelta("hm"), finish=DONE_AT_ONCE))["message"]
    assert (thought["content"], thought["reasoning"]) == (None, "hm")
    both = body(output(ContentDelta("x"), CALL, finish=DONE_AT_ONCE))["message"]
    assert both["content"] == "x"


def test_logprobs_without_text_get_their_own_chunk() -> None:
    half = TokenLogProb("�", -0.5, [240, 159], [])
    writer = ChunkWriter(IDENTITY, StreamOptions(), record_of(1, []), 1)
    (chunk,) = data_of(writer.events([output(logprobs=(half,))]).decode())
    assert chunk["choices"][0]["delta"] == {"content": ""}
    assert chunk["choices"][0]["logprobs"]["content"][0]["bytes"] == [240, 159]


def test_empty_output_is_not_written() -> None:
    writer = ChunkWriter(IDENTITY, StreamOptions(), record_of(1, []), 1)
    assert writer.events([Signal.STARTED, output()]) == b""
    assert writer.events([Signal.PING]) == b": ping\n\n"


def test_newlines_in_text_do_not_end_an_event() -> None:
    writer = ChunkWriter(IDENTITY, StreamOptions(), record_of(1, []), 1)
    (chunk,) = data_of(writer.events([output(ContentDelta("a\n\ndata: b\r\u2028"))]).decode())
    assert chunk["choices"][0]["delta"]["content"] == "a\n\ndata: b\r\u2028"


def test_numbers_are_finite() -> None:
    entry = TokenLogProb("x", -math.inf, None, [])
    writer = ChunkWriter(IDENTITY, StreamOptions(), record_of(1, []), 1)
    text = writer.events([output(ContentDelta("x"), logprobs=(entry,))]).decode()
    assert "Infinity" not in text
    assert "NaN" not in text


def test_a_failed_stream() -> None:
    (event,) = data_of(error_event(Problem.of(PeerLost("the engine went away"))).decode())
    assert event == {
        "error": {"message": "the engine went away", "type": "server_error", "param": None, "code": "peer_lost"}
    }
    assert DONE not in data_of(error_event(Problem.of(PeerLost("x"))).decode())
