"""Over a real gRPC connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import pytest
from prometheus_client import CollectorRegistry

from detokenizer_svc.metrics import DetokenizerMetrics
from detokenizer_svc.servicer import BATCH_TOKENS, DetokenizerServicer
from detokenizer_svc.vocabulary import Vocabulary
from protos.v1 import common_pb2
from protos.v1 import detokenizer_pb2 as pb
from protos.v1 import detokenizer_pb2_grpc as pb_grpc
from svclib.channel import connect
from svclib.errors import InternalError, InvalidRequest
from svclib.session import Opening, SessionClient
from tests.detokenizer_svc.given import BYTES, SIZES, cut, vocabulary_of

Client = SessionClient[pb.FormatRequest, pb.FormatInput, pb.FormatEvent]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@dataclass
class Connection:
    client: Client
    stub: pb_grpc.DetokenizerAsyncStub
    registry: CollectorRegistry

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(vocabulary: Vocabulary = BYTES) -> AsyncIterator[Connection]:
    registry = CollectorRegistry()
    servicer = DetokenizerServicer(DetokenizerMetrics(registry))
    servicer.use(vocabulary)
    server = grpc.aio.server()
    pb_grpc.add_DetokenizerServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = connect(f"127.0.0.1:{port}")
    stub: pb_grpc.DetokenizerAsyncStub = pb_grpc.DetokenizerStub(channel)
    client: Client = SessionClient(stub.Session, pb.DetokenizerClientFrame, peer="detokenizer")
    try:
        yield Connection(client, stub, registry)
    finally:
        await client.close()
        await channel.close(None)
        await server.stop(None)


@dataclass
class Answer:
    """The events of one choice, joined."""

    content: str = ""
    reasoning: str = ""
    calls: list[list[str]] = field(default_factory=list)
    logprobs: list[pb.TokenLogProb] = field(default_factory=list)
    num_events: int = 0
    last: pb.FormatEvent = field(default_factory=pb.FormatEvent)

    def add(self, event: pb.FormatEvent) -> None:
        self.num_events += 1
        for delta in event.deltas:
            self.content += delta.content
            self.reasoning += delta.reasoning
            if delta.HasField("tool_call"):
                call = delta.tool_call
                if call.id:
                    self.calls.append([call.name, ""])
                self.calls[call.index][1] += call.arguments
        self.logprobs.extend(event.logprobs)
        self.last = event


async def ask(client: Client, request: pb.FormatRequest, *inputs: pb.FormatInput) -> Answer:
    """Send inputs one by one, each after the server has run."""
    answer = Answer()
    async with client.open(request, Opening("r")) as stream:
        for message in inputs:
            stream.send(message)
            await asyncio.sleep(0)
        async for event in stream:
            answer.add(event)
    return answer


def inputs_of(text: str, size: int = 10**9, reason: str = "stop") -> list[pb.FormatInput]:
    pieces = list(cut(text.encode(), size)) or [b""]
    return [
        *(pb.FormatInput(token_ids=piece) for piece in pieces[:-1]),
        pb.FormatInput(token_ids=pieces[-1], finish_reason=reason),
    ]


async def test_a_whole_choice() -> None:
    request = pb.FormatRequest(
        reasoning_parser="think",
        reasoning_state=common_pb2.REASONING_STATE_OPEN,
        tool_parser="hermes",
        tools=[common_pb2.ToolDefinition(name="get_weather")],
    )
    text = f"Where? 京都\n</think>\n\nI look.\n{CALL}"
    async with serving() as connection:
        for size in SIZES:
            answer = await ask(connection.client, request, *inputs_of(text, size))
            assert (answer.reasoning, answer.content) == ("Where? 京都", "I look.\n")
            assert answer.calls == [["get_weather", '{"city": "Paris"}']]
            assert answer.last.finish_reason == "tool_calls"
            assert answer.last.completion_tokens == len(text.encode())
            assert answer.last.reasoning_tokens == len("Where? 京都\n".encode())
            assert not answer.last.HasField("matched_stop")


async def test_a_stop_string_ends_the_choice_before_the_engine_does() -> None:
    request = pb.FormatRequest(stop=["DEFGHIJ"])
    async with serving() as connection:
        answer = await ask(connection.client, request, *(pb.FormatInput(token_ids=[b]) for b in b"ABC DEFGHIJKLM"))
    assert answer.content == "ABC "
    assert answer.last.matched_stop == "DEFGHIJ"
    assert (answer.last.finish_reason, answer.last.completion_tokens) == ("stop", 11)


async def test_defaults_and_zeros() -> None:
    vocabulary = vocabulary_of(b"a", b".", special=("<eot>",))
    message = pb.FormatInput(token_ids=[0, 2, 1, 0, 1], finish_reason="length")
    async with serving(vocabulary) as connection:
        for request, content in [
            (pb.FormatRequest(), "a.a."),
            (pb.FormatRequest(skip_special_tokens=True), "a.a."),
            (pb.FormatRequest(skip_special_tokens=False), "a<eot>.a."),
            (pb.FormatRequest(stop=["."]), "a"),
            (pb.FormatRequest(stop=["."], min_tokens=0), "a"),
            (pb.FormatRequest(stop=["."], min_tokens=3), "a.a"),
            (pb.FormatRequest(prompt_tail_ids=[0, 1]), "a.a."),
        ]:
            assert (await ask(connection.client, request, message)).content == content


@pytest.mark.parametrize(
    ("state", "reasoning"),
    [
        (common_pb2.REASONING_STATE_UNSPECIFIED, ""),
        (common_pb2.REASONING_STATE_UNDECIDED, ""),
        (common_pb2.REASONING_STATE_OPEN, "a"),
        (common_pb2.REASONING_STATE_CLOSED, ""),
    ],
)
async def test_reasoning_states(state: common_pb2.ReasoningState.ValueType, reasoning: str) -> None:
    request = pb.FormatRequest(reasoning_parser="think", reasoning_state=state)
    async with serving() as connection:
        assert (await ask(connection.client, request, *inputs_of("a</think>b"))).reasoning == reasoning


def logprobs(token_ids: list[int], top: list[list[int]]) -> common_pb2.OutputLogProbs:
    return common_pb2.OutputLogProbs(
        token_logprobs=[-float(n) for n in range(len(token_ids))],
        token_ids=token_ids,
        top_logprobs=[common_pb2.TopLogProbs(values=[-0.5] * len(ids), token_ids=ids) for ids in top],
    )


async def test_log_probabilities_carry_bytes_and_text() -> None:
    vocabulary = vocabulary_of(b"\xf0\x9f", b"\x94\xa5", b"a", special=("<eot>",))
    message = pb.FormatInput(
        token_ids=[0, 1, 3],
        output_logprobs=logprobs([0, 1, 3], [[0, 2], [], [3, 77]]),
        finish_reason="stop",
        ended_by_token=True,
    )
    async with serving(vocabulary) as connection:
        answer = await ask(connection.client, pb.FormatRequest(), message)
    assert answer.content == "🔥"
    assert [entry.sampled.token_bytes for entry in answer.logprobs] == [b"\xf0\x9f", b"\x94\xa5", b""]
    assert [entry.sampled.token for entry in answer.logprobs] == ["\ufffd", "\ufffd\ufffd", "<eot>"]
    assert [entry.sampled.logprob for entry in answer.logprobs] == [0.0, -1.0, -2.0]
    assert [[option.token for option in entry.top] for entry in answer.logprobs] == [["\ufffd", "a"], [], ["<eot>", ""]]


@pytest.mark.parametrize("size", SIZES)
async def test_there_is_one_log_probability_for_each_counted_token(size: int) -> None:
    request = pb.FormatRequest(stop=["STOP"], tool_parser="hermes", reasoning_parser="think")
    text = f"<think>a</think>{CALL} STOP and more"
    pieces = [list(piece) for piece in cut(text.encode(), size)]
    inputs = [pb.FormatInput(token_ids=piece, output_logprobs=logprobs(piece, [[1]] * len(piece))) for piece in pieces]
    async with serving() as connection:
        answer = await ask(connection.client, request, *inputs)
    counted = text.index("STOP") + 4
    assert answer.last.completion_tokens == len(answer.logprobs) == counted
    assert b"".join(entry.sampled.token_bytes for entry in answer.logprobs) == text.encode()[:counted]


async def test_log_probabilities_are_sent_while_text_is_held_back() -> None:
    request = pb.FormatRequest(stop=["abc"])
    async with serving() as connection, connection.client.open(request, Opening("r")) as stream:
        stream.send(pb.FormatInput(token_ids=b"a", output_logprobs=logprobs([97], [[]])))
        event = await anext(stream)
        assert len(event.logprobs) == 1
        assert not event.deltas


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (pb.FormatRequest(tool_parser="nope"), "tool_parser"),
        (pb.FormatRequest(reasoning_parser="nope"), "reasoning_parser"),
        (pb.FormatRequest(stop=[""]), "stop"),
    ],
)
async def test_invalid_requests(request_: pb.FormatRequest, param: str) -> None:
    async with serving() as connection:
        with pytest.raises(InvalidRequest) as refused:
            await ask(connection.client, request_, *inputs_of("a"))
        assert refused.value.param == param


@pytest.mark.parametrize(
    "message",
    [
        pb.FormatInput(token_ids=[65, 259]),
        pb.FormatInput(token_ids=[2**32 - 1]),
        pb.FormatInput(token_ids=[65], finish_reason="abort"),
        pb.FormatInput(finish_reason="stop", ended_by_token=True),
        pb.FormatInput(token_ids=[65, 66], output_logprobs=logprobs([65], [[]])),
        pb.FormatInput(token_ids=[65], output_logprobs=logprobs([65], [])),
    ],
)
async def test_an_invalid_input_ends_only_its_own_choice(message: pb.FormatInput) -> None:
    async with serving() as connection, connection.client.open(pb.FormatRequest(), Opening("other")) as other:
        other.send(pb.FormatInput(token_ids=b"x"))
        assert (await anext(other)).deltas[0].content == "x"
        with pytest.raises(InternalError):
            await ask(connection.client, pb.FormatRequest(), message)
        other.send(pb.FormatInput(token_ids=b"y", finish_reason="stop"))
        assert [delta.content async for event in other for delta in event.deltas] == ["y"]


async def test_a_long_replay_is_formatted_in_batches_between_which_other_choices_run() -> None:
    text = "0123456789" * 4000
    assert len(text) > 5 * BATCH_TOKENS
    async with serving() as connection:
        answer = await ask(connection.client, pb.FormatRequest(), *inputs_of(text, reason="length"))
        assert answer.content == text
        assert answer.last.completion_tokens == len(text)
        assert answer.num_events > 1
        assert connection.metric("pellucid_detokenizer_events_total") == -(-len(text) // BATCH_TOKENS)


async def test_many_choices_at_once() -> None:
    async def one(connection: Connection, number: int) -> None:
        text = json.dumps({"number": number, "text": "京都 🔥" * number})
        answer = await ask(connection.client, pb.FormatRequest(stop=["never"]), *inputs_of(text, size=1 + number % 7))
        assert answer.content == text

    async with serving() as connection:
        await asyncio.gather(*(one(connection, number) for number in range(64)))
        assert connection.metric("pellucid_detokenizer_choices_finished_total", finished_reason="stop") == 64
        assert connection.metric("pellucid_detokenizer_choices_running") == 0


async def test_metrics() -> None:
    request = pb.FormatRequest(tool_parser="hermes", stop=["END"])
    async with serving() as connection:
        await ask(connection.client, request, *inputs_of("<tool_call>x <tool_call>{END and more"))
        async with connection.client.open(request, Opening("left")) as stream:
            stream.send(pb.FormatInput(token_ids=b"<tool_call>y!"))
            await anext(stream)
            assert connection.metric("pellucid_detokenizer_choices_running") == 1
        for _ in range(200):
            if not connection.metric("pellucid_detokenizer_choices_running"):
                break
            await asyncio.sleep(0.01)
        assert connection.metric("pellucid_detokenizer_parse_failures_total", parser="hermes") == 3
        assert connection.metric("pellucid_detokenizer_tokens_total") == len(
            "<tool_call>x <tool_call>{END<tool_call>y!"
        )
        assert connection.metric("pellucid_detokenizer_choices_running") == 0


async def test_info() -> None:
    async with serving() as connection:
        info = await connection.stub.GetInfo(pb.DetokenizerInfoRequest())
    assert info.vocab_size == 259
    assert list(info.tool_parsers) == ["hermes"]
    assert list(info.reasoning_parsers) == ["think"]
    (syntax,) = info.call_syntaxes
    assert (syntax.tool_parser, syntax.opening, syntax.closing) == ("hermes", "<tool_call>", "}\n</tool_call>")
    assert not syntax.special_token_ids


async def test_info_reports_the_tags_that_are_special_tokens() -> None:
    vocabulary = vocabulary_of(b"a", b"</tool_call>", special=("<eot>", "<tool_call>"))
    async with serving(vocabulary) as connection:
        info = await connection.stub.GetInfo(pb.DetokenizerInfoRequest())
    assert dict(info.call_syntaxes[0].special_token_ids) == {"<tool_call>": 3}
