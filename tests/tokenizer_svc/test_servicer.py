"""The service over gRPC."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry
from tokenizers import Tokenizer, models

from modelfiles.tokenizer import LoadedTokenizer, load_tokenizer
from protos import simulated
from protos.v1 import common_pb2
from protos.v1 import tokenizer_pb2 as pb
from protos.v1 import tokenizer_pb2_grpc as pb_grpc
from svclib.channel import connect
from svclib.errors import ContextLengthExceeded, InternalError, InvalidRequest, Overloaded, ServiceError, Unavailable
from svclib.status import from_rpc_error
from tests.tokenizer_svc import hostile_templates, templates, tiny
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.conversation import Conversation
from tokenizer_svc.encoder import Encoder
from tokenizer_svc.limits import Limits
from tokenizer_svc.metrics import TokenizerMetrics
from tokenizer_svc.pool import Pool
from tokenizer_svc.prompt_tokenizer import PromptTokenizer, TokenizedPrompt
from tokenizer_svc.renderer import Renderer
from tokenizer_svc.servicer import MAX_INPUTS, TokenizerServicer

MAX_CHARS = 1000
UNDECIDED, OPEN, CLOSED = (
    common_pb2.REASONING_STATE_UNDECIDED,
    common_pb2.REASONING_STATE_OPEN,
    common_pb2.REASONING_STATE_CLOSED,
)


class Served:
    """A running servicer and a client of it."""

    def __init__(self, stub: pb_grpc.TokenizerAsyncStub, registry: CollectorRegistry) -> None:
        self.stub = stub
        self._registry = registry

    async def render(self, *messages: pb.ChatMessage, **more: Any) -> pb.RenderResponse:
        return await self.stub.Render(pb.RenderRequest(messages=messages, **more))

    def rejected(self, reason: str) -> float | None:
        return self._registry.get_sample_value("pellucid_tokenizer_rejected_total", {"reason": reason})


@asynccontextmanager
async def served(tokenizer: PromptTokenizer | None, workers: int = 2, max_waiting: int = 100) -> AsyncIterator[Served]:
    registry, pool, server = CollectorRegistry(), Pool(workers, max_waiting), grpc.aio.server()
    servicer = TokenizerServicer(pool, TokenizerMetrics(registry), MAX_CHARS)
    if tokenizer is not None:
        servicer.use(tokenizer)
    pb_grpc.add_TokenizerServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with connect(f"127.0.0.1:{port}") as channel:
            yield Served(pb_grpc.TokenizerStub(channel), registry)
    finally:
        await server.stop(0)
        pool.close()


@pytest.fixture(scope="module")
def tokenizer() -> PromptTokenizer:
    return PromptTokenizer(load_tokenizer(simulated.MODEL_NAME), compiled)


@pytest.fixture
async def service(tokenizer: PromptTokenizer) -> AsyncIterator[Served]:
    async with served(tokenizer) as running:
        yield running


def base_model(**chat_templates: str) -> PromptTokenizer:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return PromptTokenizer(LoadedTokenizer(tiny.byte_level(), special, chat_templates, (7,)), compiled)


def user(text: str) -> pb.ChatMessage:
    return pb.ChatMessage(role="user", text=text)


async def refusal(call: Awaitable[Any]) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value, peer="tokenizer")


async def test_render(service: Served, tokenizer: PromptTokenizer) -> None:
    answer = await service.render(user("Zürich"))
    assert answer.text.endswith("<|im_start|>user\nZürich<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.detokenize(list(answer.token_ids), skip_special_tokens=False) == answer.text
    assert list(answer.eos_token_ids) == [simulated.EOS_TOKEN_ID]
    assert answer.reasoning_state == UNDECIDED
    assert answer.template_version == tokenizer.template_version
    assert 0 < answer.rendered_at <= answer.tokenized_at


async def test_render_everything_that_a_conversation_can_hold(service: Served) -> None:
    parameters = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}})
    answer = await service.render(
        pb.ChatMessage(role="developer", text="Be brief."),
        pb.ChatMessage(
            role="user", parts=pb.ContentParts(parts=[pb.ContentPart(text="A"), pb.ContentPart(text="B")]), name="n"
        ),
        pb.ChatMessage(
            role="assistant",
            reasoning_content="why",
            tool_calls=[pb.ToolCall(id="c1", name="weather", arguments='{"city":"Zürich"}')],
        ),
        pb.ChatMessage(role="tool", text="12", tool_call_id="c1"),
        tools=[common_pb2.ToolDefinition(name="weather", description="d", parameters_json=parameters, strict=True)],
        chat_template_kwargs_json='{"enable_thinking": false}',
    )
    for part in (
        "<|im_start|>system\nBe brief.",
        '"name": "weather", "description": "d", "parameters": {"type": "object"',
        '"strict": true',
        "<|im_start|>user\nA\nB<|im_end|>",
        '<think>\nwhy\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>',
        "<tool_response>\n12\n</tool_response>",
    ):
        assert part in answer.text
    assert answer.text.endswith("<think>\n\n</think>\n\n")
    assert answer.reasoning_state == CLOSED


@pytest.mark.parametrize(
    ("more", "ending", "state"),
    [
        ({}, "<|im_start|>assistant\n", UNDECIDED),
        ({"add_generation_prompt": True}, "<|im_start|>assistant\n", UNDECIDED),
        ({"add_generation_prompt": False}, "<think>so<|im_end|>\n", UNDECIDED),
        ({"continue_final_message": True}, "<think>so", OPEN),
        ({"continue_final_message": False}, "<|im_start|>assistant\n", UNDECIDED),
        ({"continue_final_message": True, "add_generation_prompt": False}, "<think>so", OPEN),
    ],
)
async def test_how_a_prompt_ends(service: Served, more: dict[str, bool], ending: str, state: int) -> None:
    answer = await service.render(user("q"), pb.ChatMessage(role="assistant", text="<think>so"), **more)
    assert answer.text.endswith(ending)
    assert answer.reasoning_state == state


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (pb.RenderRequest(), "messages"),
        (pb.RenderRequest(messages=[pb.ChatMessage(role="user")]), "messages[0].content"),
        (pb.RenderRequest(messages=[user("a"), pb.ChatMessage(role="wizard", text="x")]), "messages[1].role"),
        (
            pb.RenderRequest(
                messages=[user("a"), pb.ChatMessage(role="user", parts=pb.ContentParts(parts=[pb.ContentPart()]))]
            ),
            "messages[1].content[0].text",
        ),
        (
            pb.RenderRequest(
                messages=[user("a"), pb.ChatMessage(role="assistant", tool_calls=[pb.ToolCall(name="f")])]
            ),
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            pb.RenderRequest(messages=[user("a")], tools=[common_pb2.ToolDefinition(name="f", parameters_json="[]")]),
            "tools[0].function.parameters",
        ),
        (pb.RenderRequest(messages=[user("a")], chat_template_kwargs_json='{"messages":[]}'), "chat_template_kwargs"),
        (pb.RenderRequest(messages=[user("a")], continue_final_message=True), "continue_final_message"),
        (pb.RenderRequest(messages=[user("a" * (MAX_CHARS + 1))]), "messages"),
    ],
)
async def test_bad_requests_name_their_field(service: Served, request_: pb.RenderRequest, param: str) -> None:
    error = await refusal(service.stub.Render(request_))
    assert isinstance(error, InvalidRequest)
    assert error.param == param
    assert (await service.render(user("a"))).token_ids


async def test_the_size_at_the_limit_and_one_above(service: Served) -> None:
    assert (await service.render(user("ü" * MAX_CHARS))).token_ids
    error = await refusal(service.render(user("ü" * MAX_CHARS), user("a")))
    assert isinstance(error, ContextLengthExceeded)
    assert service.rejected("context_length_exceeded") == 1


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
async def test_the_longest_prompt_and_one_token_more(service: Served, more: int, refused: bool) -> None:
    longest = len((await service.render(user(""))).token_ids)
    call = service.render(user("a" * more), max_prompt_tokens=longest)
    if not refused:
        assert len((await call).token_ids) == longest
        return
    error = await refusal(call)
    assert isinstance(error, ContextLengthExceeded)
    assert error.param == "messages"
    assert error.message.startswith(f"the messages are {longest + 1} tokens long and the model's context has ")


async def test_a_prompt_that_can_never_fit_is_refused_before_it_is_encoded(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = []
    monkeypatch.setattr(Encoder, "encode_prompt", lambda *args: encoded.append(args))
    error = await refusal(service.render(user("a" * MAX_CHARS), max_prompt_tokens=20))
    assert isinstance(error, ContextLengthExceeded)
    assert "at least" in error.message
    assert not encoded


async def test_a_runaway_template_does_not_affect_other_requests() -> None:
    """A template that loops if it reads ``loop``, and fills memory if it reads ``fill``."""
    runs_away = (
        "{% if messages[-1].content == 'loop' %}" + hostile_templates.SLOW["nested ranges"] + "{% endif %}"
        "{% if messages[-1].content == 'fill' %}" + hostile_templates.LARGE["center"] + "{% endif %}"
    )
    renderer = Renderer(2, Limits(1.0, 96 << 20, 100_000))
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    loaded = LoadedTokenizer(tiny.byte_level(), special, {"default": templates.CHATML + runs_away}, (7,))
    try:
        async with served(PromptTokenizer(loaded, renderer.template)) as service:
            for word, sentence in (
                ("loop", "ran for more than 1 seconds"),
                ("fill", "needed more than 96 MB of memory"),
            ):
                hostile = asyncio.create_task(refusal(service.render(user(word))))
                assert (await service.render(user("hi"))).token_ids
                error = await hostile
                assert isinstance(error, InvalidRequest)
                assert (error.message, error.param) == (f"the chat template {sentence}", "messages")
                assert (await service.render(user("hi"))).token_ids
    finally:
        renderer.close()


async def test_tools_for_a_template_without_tools() -> None:
    async with served(base_model(default=templates.CHATML)) as service:
        error = await refusal(service.render(user("a"), tools=[common_pb2.ToolDefinition(name="f")]))
        assert error.param == "tools"
        assert service.rejected("unsupported") == 1


async def test_a_templates_refusal_keeps_its_message() -> None:
    async with served(base_model(default=templates.STRICT)) as service:
        error = await refusal(service.render(user("a"), user("b")))
        assert error.message == "Conversation roles must alternate user/assistant/user/assistant/..."
        assert error.param == "messages"


async def test_tokenize(service: Served) -> None:
    answer = await service.stub.Tokenize(
        pb.TokenizeRequest(
            inputs=[
                pb.TokenizeInput(text="ABC "),
                pb.TokenizeInput(raw=b"\xf0\x9f"),
                pb.TokenizeInput(text=""),
                pb.TokenizeInput(text="<|im_end|>"),
            ]
        )
    )
    assert [bytes(output.token_ids) for output in answer.outputs] == [b"ABC ", b"\xf0\x9f", b"", b"<|im_end|>"]


async def test_tokenize_with_special_tokens() -> None:
    async with served(base_model()) as service:
        request = pb.TokenizeRequest(inputs=[pb.TokenizeInput(text="<s>")], parse_special_tokens=True)
        (parsed,) = (await service.stub.Tokenize(request)).outputs
        assert list(parsed.token_ids) == [tiny.byte_level().token_to_id("<s>")]
        request.parse_special_tokens = False
        (plain,) = (await service.stub.Tokenize(request)).outputs
        assert len(plain.token_ids) == 3


async def test_bytes_missing_from_the_vocabulary() -> None:
    words = Tokenizer(models.WordLevel({"<unk>": 0, "fox": 1}, unk_token="<unk>"))
    async with served(PromptTokenizer(LoadedTokenizer(words, {}, {}, (0,)), compiled)) as service:
        inputs = [pb.TokenizeInput(raw=b"fox"), pb.TokenizeInput(raw=b"\xf0")]
        assert (await refusal(service.stub.Tokenize(pb.TokenizeRequest(inputs=inputs)))).param == "inputs[1]"


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (pb.TokenizeRequest(inputs=[pb.TokenizeInput(text="a"), pb.TokenizeInput()]), "inputs[1]"),
        (pb.TokenizeRequest(inputs=[pb.TokenizeInput(raw=b"a")], add_special_tokens=True), "add_special_tokens"),
        (pb.TokenizeRequest(inputs=[pb.TokenizeInput()] * (MAX_INPUTS + 1)), "inputs"),
        (pb.TokenizeRequest(inputs=[pb.TokenizeInput(text="a" * (MAX_CHARS + 1))]), "inputs"),
    ],
)
async def test_invalid_tokenize_requests(service: Served, request_: pb.TokenizeRequest, param: str) -> None:
    error = await refusal(service.stub.Tokenize(request_))
    assert isinstance(error, InvalidRequest)
    assert error.param == param


async def test_inputs_are_encoded_beside_a_prompt(service: Served) -> None:
    inputs = [pb.TokenizeInput(raw=b"a<|im_end|>"), pb.TokenizeInput(text="b"), pb.TokenizeInput(raw=b"\xf0")]
    answer = await service.render(user("hi"), inputs=inputs)
    assert answer.token_ids == (await service.render(user("hi"))).token_ids
    assert [list(each.token_ids) for each in answer.outputs] == [[97, simulated.EOS_TOKEN_ID], [98], [0xF0]]


async def test_invalid_inputs_beside_a_prompt(service: Served) -> None:
    for inputs, param in (
        ([pb.TokenizeInput(text="a"), pb.TokenizeInput()], "inputs[1]"),
        ([pb.TokenizeInput(raw=b"a")] * (MAX_INPUTS + 1), "inputs"),
        ([pb.TokenizeInput(text="a" * (MAX_CHARS + 1))], "inputs"),
    ):
        assert (await refusal(service.render(user("hi"), inputs=inputs))).param == param


async def test_detokenize(service: Served) -> None:
    ids = [*"Zü".encode(), 0xF0, simulated.EOS_TOKEN_ID]
    answer = await service.stub.Detokenize(pb.DetokenizeRequest(token_ids=ids))
    assert answer.text == "Zü\ufffd<|im_end|>"
    answer = await service.stub.Detokenize(
        pb.DetokenizeRequest(token_ids=ids[:-2] + ids[-1:], skip_special_tokens=True)
    )
    assert answer.text == "Zü"


@pytest.mark.parametrize(
    ("ids", "param"),
    [([simulated.VOCAB_SIZE], "token_ids[0]"), ([2**32 - 1], "token_ids[0]"), ([1] * 1001, "token_ids")],
)
async def test_invalid_detokenize_requests(service: Served, ids: list[int], param: str) -> None:
    error = await refusal(service.stub.Detokenize(pb.DetokenizeRequest(token_ids=ids)))
    assert error.param == param


async def test_info(service: Served, tokenizer: PromptTokenizer) -> None:
    info = await service.stub.GetInfo(pb.TokenizerInfoRequest())
    assert info.vocab_size == simulated.VOCAB_SIZE
    assert not info.HasField("bos_token_id")
    assert list(info.eos_token_ids) == [simulated.EOS_TOKEN_ID]
    assert info.template_version == tokenizer.template_version
    assert (info.tool_parser, info.reasoning_parser) == ("hermes", "think")
    assert {"messages", "tools", "enable_thinking", "thinking"} <= set(info.template_variables)
    assert "reasoning_effort" not in info.template_variables
    tags = {
        each.reasoning_parser: (bytes(each.start_token_ids), bytes(each.end_token_ids)) for each in info.reasoning_tags
    }
    assert tags["think"] == (b"<think>", b"</think>")
    assert info.capabilities == pb.TemplateCapabilities(
        system_role=True, tools=True, tool_calls=True, tool_results=True, arguments_as_object=True, reasoning=True
    )


async def test_info_of_a_model_without_a_chat_template() -> None:
    async with served(base_model()) as service:
        info = await service.stub.GetInfo(pb.TokenizerInfoRequest())
        assert (info.template_version, info.tool_parser, info.reasoning_parser) == ("", "", "")
        assert not info.HasField("capabilities")
        assert not info.template_variables
        assert info.bos_token_id == tiny.byte_level().token_to_id("<s>")
        assert (await refusal(service.render(user("a")))).param == "messages"


async def test_before_it_is_loaded() -> None:
    async with served(None) as service:
        for call in (service.render(user("a")), service.stub.GetInfo(pb.TokenizerInfoRequest())):
            assert isinstance(await refusal(call), Unavailable)


async def test_too_many_calls_at_once(tokenizer: PromptTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    started, release, render = threading.Event(), threading.Event(), PromptTokenizer.render

    def slow(self: PromptTokenizer, conversation: Conversation) -> TokenizedPrompt:
        started.set()
        assert release.wait(10)
        return render(self, conversation)

    monkeypatch.setattr(PromptTokenizer, "render", slow)
    async with served(tokenizer, workers=1, max_waiting=0) as service:
        first = asyncio.create_task(service.render(user("a")))
        assert await asyncio.to_thread(started.wait, 10)
        error = await refusal(service.render(user("b")))
        assert isinstance(error, Overloaded)
        assert error.retry_after
        assert service.rejected("overloaded") == 1
        assert (await service.stub.GetInfo(pb.TokenizerInfoRequest())).vocab_size  # The event loop is not blocked.
        release.set()
        assert (await first).token_ids


async def test_an_unexpected_fault_reveals_nothing(tokenizer: PromptTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: PromptTokenizer, _conversation: object) -> None:
        raise KeyError("the secret of the house")

    monkeypatch.setattr(PromptTokenizer, "render", broken)
    async with served(tokenizer) as service:
        error = await refusal(service.render(user("a")))
        assert isinstance(error, InternalError)
        assert service.rejected("internal") == 1


async def test_many_conversations_at_once_do_not_mix(service: Served) -> None:
    answers = await asyncio.gather(*(service.render(user(f"number {i}")) for i in range(100)))
    for i, answer in enumerate(answers):
        assert f"<|im_start|>user\nnumber {i}<|im_end|>" in answer.text
