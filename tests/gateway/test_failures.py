"""What the client sees when a service behind the gateway fails."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openai import APIError

from gateway.replicas import health
from protos.v1 import detokenizer_pb2, tokenizer_pb2
from svclib.errors import (
    TABLE,
    ContextLengthExceeded,
    InternalError,
    InvalidRequest,
    Overloaded,
    ServiceError,
    Unavailable,
)
from svclib.liveness import ProbePolicy
from tests.gateway.running import HI, MODEL, Stack, real_stack, scripted_stack, until
from tests.gateway.scripted import (
    CONTEXT,
    VOCABULARY,
    FormatCall,
    GenerateCall,
    ScriptedDetokenizer,
    ScriptedEngine,
    ScriptedTokenizer,
    head,
    say_hello,
    tokens,
)
from tests.gateway.sse import collect
from tests.tokenizer_svc import templates, tiny

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


async def works_again(stack: Stack) -> None:
    """Nothing is left of the failed request, and the next one succeeds."""
    await stack.until_idle()
    engine, detokenizer = stack.peer("engine").servicer, stack.peer("detokenizer").servicer
    if isinstance(engine, ScriptedEngine) and isinstance(detokenizer, ScriptedDetokenizer):
        engine.generate, detokenizer.format = ScriptedEngine().generate, ScriptedDetokenizer().format
    response = await stack.chat()
    assert response.json()["choices"][0]["message"]["content"] == "hello"


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


@BOTH
@pytest.mark.parametrize("service", ["tokenizer", "engine", "detokenizer"])
async def test_hanging_peer(service: str, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections stay open and its health status stays: requests end long before any timeout."""
    monkeypatch.setattr(health, "PROBE_POLICY", ProbePolicy(interval=0.02, timeout=0.2, max_failures=2))
    started = asyncio.Event()

    async def begin_and_wait(call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("hel"))
        started.set()
        await asyncio.sleep(60)

    async def hang() -> None:
        started.set()
        await wait_for_ever()

    tokenizer = ScriptedTokenizer(hang if service == "tokenizer" else None)
    async with scripted_stack(ScriptedEngine(begin_and_wait), tokenizer=tokenizer) as stack, stack.http() as client:
        asking = asyncio.create_task(stack.chat(stream=stream))
        await started.wait()
        stack.peer(service).pausable.answering.clear()
        response = await asyncio.wait_for(asking, 20)
        if response.headers["content-type"] == "application/json":
            assert response.status_code == 503
            assert response.headers["retry-after"]
            error = response.json()["error"]
        else:
            error = collect(response.text).error
        assert error["code"] in {"peer_lost", "unavailable"}
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["error"]["message"]) == (503, f"not ready: {service}")
        stack.peer(service).pausable.answering.set()
        await stack.until_ready()
        tokenizer.before_render = None
        await works_again(stack)


def failing(error: Exception) -> ScriptedEngine:
    async def generate(call: GenerateCall) -> None:
        raise error

    return ScriptedEngine(generate)


@pytest.mark.parametrize(
    ("param", "fields", "spelled"),
    [
        ("prompt", {}, "messages"),
        ("max_tokens", {"max_tokens": 5}, "max_tokens"),
        ("max_tokens", {"max_completion_tokens": 5}, "max_completion_tokens"),
        ("logprobs", {"logprobs": True}, "top_logprobs"),
        ("seed", {}, "seed"),
    ],
)
async def test_engine_error_names_the_client_field(param: str, fields: dict[str, Any], spelled: str) -> None:
    async with scripted_stack(failing(InvalidRequest("no, because", param=param))) as stack:
        response = await stack.chat(**fields)
        assert (response.status_code, response.json()["error"]["param"]) == (400, spelled)


class FailingInTheMiddle(ScriptedEngine):
    """Emits some output, and fails when told to."""

    def __init__(self, error: Exception) -> None:
        super().__init__(self.begin)
        self.error = error
        self.may_fail = asyncio.Event()

    async def begin(self, call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("hel"))
        await self.may_fail.wait()
        raise self.error


@BOTH
@pytest.mark.parametrize("cls", TABLE)
async def test_engine_errors_keep_status_and_message(cls: type[ServiceError], stream: bool) -> None:
    error = InternalError() if cls is InternalError else cls("no, because", param="max_tokens", retry_after=2.0)
    async with scripted_stack(failing(error)) as stack:
        response = await stack.chat(stream=stream)
        assert response.status_code == TABLE[cls].http
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"] == {
            "message": error.message, "type": TABLE[cls].type, "param": error.param, "code": TABLE[cls].code,
        }  # fmt: skip
        assert response.headers.get("retry-after") == (None if cls is InternalError else "2")
        await works_again(stack)


@BOTH
async def test_unexpected_engine_error_is_hidden(stream: bool) -> None:
    async with scripted_stack(failing(RuntimeError("secret of the house"))) as stack:
        response = await stack.chat(stream=stream)
        assert response.status_code == 500
        assert response.json()["error"]["message"] == "internal error"
        assert "secret" not in response.text
        await works_again(stack)


async def test_engine_failure_mid_stream() -> None:
    engine = FailingInTheMiddle(Overloaded("too much", retry_after=1.0))
    async with scripted_stack(engine) as stack, stack.http() as client:
        body = {"model": MODEL, "messages": HI, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            text = ""
            async for piece in response.aiter_text():
                text += piece
                if "hel" in text:
                    engine.may_fail.set()
        answer = collect(text)
        assert response.status_code == 200
        assert answer.choices[0].content == "hel"
        assert answer.choices[0].finish_reason is None
        assert answer.error == {"message": "too much", "type": "server_error", "param": None, "code": "overloaded"}
        assert not answer.done
        whole = await stack.chat()
        assert (whole.status_code, whole.json()["error"]["code"]) == (503, "overloaded")
        await works_again(stack)


async def test_sdk_raises_for_a_failed_stream() -> None:
    engine = FailingInTheMiddle(RuntimeError("secret"))
    async with scripted_stack(engine) as stack:
        seen = ""
        with pytest.raises(APIError) as caught:
            async for chunk in await stack.client().chat.completions.create(model=MODEL, messages=HI, stream=True):
                seen += chunk.choices[0].delta.content or ""
                if seen:
                    engine.may_fail.set()
        assert seen == "hel"
        assert caught.value.message == "internal error"


@BOTH
@pytest.mark.parametrize("service", ["engine", "detokenizer"])
async def test_killed_peer(service: str, stream: bool) -> None:
    started = asyncio.Event()

    async def begin_and_wait(call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("hel"))
        started.set()
        await asyncio.sleep(60)

    async with scripted_stack(ScriptedEngine(begin_and_wait)) as stack:
        asking = asyncio.create_task(stack.chat(stream=stream))
        await started.wait()
        await stack.peer(service).stop()
        response = await asyncio.wait_for(asking, 20)
        if response.headers["content-type"] == "application/json":
            assert response.status_code == 503
            assert response.headers["retry-after"]
            error = response.json()["error"]
        else:
            answer = collect(response.text)
            assert not answer.done
            error = answer.error
        # A peer that had not answered yet counts as never reached.
        assert error["code"] in {"peer_lost", "unavailable"}
        assert service in error["message"]
        await stack.peer(service).start()
        await stack.until_ready()
        await works_again(stack)


@BOTH
async def test_engine_ends_without_a_finish_reason(stream: bool) -> None:
    async def generate(call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("hel"))

    async with scripted_stack(ScriptedEngine(generate)) as stack:
        response = await stack.chat(stream=stream)
        error = collect(response.text).error if stream else response.json()["error"]
        assert error["message"] == "internal error"
        await works_again(stack)


@BOTH
async def test_detokenizer_ends_without_a_finish_reason(stream: bool) -> None:
    async def format(call: FormatCall) -> None:
        call.emit(detokenizer_pb2.FormatEvent(deltas=[detokenizer_pb2.Delta(content="hel")]))

    async with scripted_stack(detokenizer=ScriptedDetokenizer(format)) as stack:
        response = await stack.chat(stream=stream)
        error = collect(response.text).error if stream else response.json()["error"]
        assert error["message"] == "internal error"
        await works_again(stack)


async def test_engine_output_for_an_unknown_choice() -> None:
    async def generate(call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("x", index=3))

    async with scripted_stack(ScriptedEngine(generate)) as stack:
        assert (await stack.chat()).status_code == 500
        await works_again(stack)


async def test_unknown_choice_mid_stream_is_an_error_event() -> None:
    """The engine sends output for an unknown choice once the client has read something."""
    may_go_on = asyncio.Event()

    async def generate(call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("hel"))
        await may_go_on.wait()
        call.emit(tokens("x", index=3))
        await asyncio.sleep(60)

    async with scripted_stack(ScriptedEngine(generate)) as stack, stack.http() as client:
        text = ""
        body = {"model": MODEL, "messages": HI, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for piece in response.aiter_text():
                text += piece
                may_go_on.set()
        answer = collect(text)
        assert answer.error["message"] == "internal error"
        assert not answer.done
        await works_again(stack)


async def test_unread_template_variables() -> None:
    tokenizer = ScriptedTokenizer()
    tokenizer.ignored_kwargs = ["mood"]
    asked = {"chat_template_kwargs": {"mood": "good"}}
    async with scripted_stack(tokenizer=tokenizer) as stack:
        answer = await stack.chat(**asked)
        assert answer.headers["x-pellucid-ignored"] == "chat_template_kwargs.mood"
    async with scripted_stack(tokenizer=tokenizer, unknown_fields="reject") as stack:
        answer = await stack.chat(**asked)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "chat_template_kwargs.mood")


async def test_unknown_fields_can_be_rejected() -> None:
    async with scripted_stack(unknown_fields="reject") as stack:
        answer = await stack.chat(frobnicate=1)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "frobnicate")


async def test_detokenizer_failure_aborts_the_engine_request() -> None:
    cancelled = asyncio.Event()

    async def generate(call: GenerateCall) -> None:
        call.emit(head())
        call.emit(tokens("x"))
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def format(call: FormatCall) -> None:
        raise RuntimeError("secret")

    async with scripted_stack(ScriptedEngine(generate), ScriptedDetokenizer(format)) as stack:
        assert (await stack.chat()).status_code == 500
        await asyncio.wait_for(cancelled.wait(), 20)
        await works_again(stack)


def refusing(error: Exception) -> ScriptedTokenizer:
    async def refuse() -> None:
        raise error

    return ScriptedTokenizer(refuse)


@BOTH
@pytest.mark.parametrize(
    "error", [InvalidRequest("no", param="messages"), ContextLengthExceeded("long"), Overloaded("full")]
)
async def test_tokenizer_errors_keep_status_and_message(error: ServiceError, stream: bool) -> None:
    async with scripted_stack(tokenizer=refusing(error)) as stack:
        response = await stack.chat(stream=stream)
        assert response.status_code == TABLE[type(error)].http
        assert response.json()["error"]["message"] == error.message
        tokenizer = stack.peer("tokenizer").servicer
        assert isinstance(tokenizer, ScriptedTokenizer)
        assert len(tokenizer.calls) == 1
        engine = stack.peer("engine").servicer
        assert isinstance(engine, ScriptedEngine)
        assert engine.calls == []


async def test_tokenizer_gets_the_prompt_limit() -> None:
    async with scripted_stack() as stack:
        await stack.chat()
        tokenizer = stack.peer("tokenizer").servicer
        assert isinstance(tokenizer, ScriptedTokenizer)
        assert [call.max_prompt_tokens for call in tokenizer.calls] == [CONTEXT - 1]


class Picky(ScriptedTokenizer):
    """Cannot encode the second input."""

    def encode(self, inputs: Sequence[tokenizer_pb2.TokenizeInput]) -> list[tokenizer_pb2.TokenList]:
        raise InvalidRequest("inputs[1] has no tokens", param="inputs[1]")


async def test_tokenizer_error_names_the_script_step() -> None:
    async with scripted_stack(tokenizer=Picky()) as stack:
        error = (await stack.chat(simulate={"steps": ["a", {"hex": "ff"}]})).json()["error"]
        assert (error["param"], error["message"]) == ("simulate.steps[1]", "simulate.steps[1] has no tokens")


async def test_lost_tokenizer_is_retried_once() -> None:
    leaving, good = refusing(Unavailable("going")), ScriptedTokenizer()
    async with scripted_stack(tokenizer=[leaving, good]) as stack:
        for _ in range(4):
            assert (await stack.chat()).status_code == 200
        assert len(good.calls) == 4
        assert leaving.calls


async def test_all_tokenizers_lost() -> None:
    leaving = [refusing(Unavailable("going", retry_after=3.0)) for _ in range(3)]
    async with scripted_stack(tokenizer=leaving) as stack:
        response = await stack.chat()
        assert response.status_code == 503
        assert response.headers["retry-after"] == "3"
        assert sum(len(each.calls) for each in leaving) == 2


async def test_remaining_engine_serves_after_a_loss() -> None:
    first, second = ScriptedEngine(), ScriptedEngine()
    async with scripted_stack([first, second]) as stack:
        for _ in range(4):
            assert (await stack.chat()).status_code == 200
        assert len(first.calls) == len(second.calls) == 2
        await stack.peers["engine"][0].stop()
        await until(lambda: sum(stack.gateway.peers()["engine"].values()) == 1)
        for _ in range(4):
            assert (await stack.chat()).status_code == 200
        assert len(second.calls) == 6


async def test_failures_do_not_affect_other_requests() -> None:
    async def generate(call: GenerateCall) -> None:
        if len(call.request.input_ids) == 3:
            raise RuntimeError("this one")
        await say_hello(call)

    async with scripted_stack(ScriptedEngine(generate)) as stack:
        asked = ["bad" if number == 5 else "good" for number in range(12)]
        responses = await asyncio.gather(
            *(stack.chat(messages=[{"role": "user", "content": content}], stream=True) for content in asked)
        )
        for content, response in zip(asked, responses, strict=True):
            assert response.status_code == (500 if content == "bad" else 200)
            assert content == "bad" or collect(response.text).choices[0].content == "hello"


@pytest.mark.parametrize("logits", [VOCABULARY - 1, VOCABULARY + 1])
async def test_vocabulary_mismatch_between_services(logits: int) -> None:
    """A larger vocabulary in the engine is usual (padding); a smaller one is an error."""
    engine = ScriptedEngine()
    engine.info.vocab_size = logits
    async with scripted_stack(engine, ready=False) as stack, stack.http() as client:
        await until(lambda: all(stack.gateway.peers()[service][stack.peer(service).address] for service in stack.peers))
        ready, answer = await client.get("/ready"), await stack.chat()
        if logits > VOCABULARY:
            assert (ready.status_code, answer.status_code) == (200, 200)
            return
        for response in (ready, answer):
            assert response.status_code == 503
            said = f"the tokenizer has {VOCABULARY} token ids and the engine has {logits}"
            assert said in response.json()["error"]["message"]


def _vocabulary(folder: Path, *, swapped: bool) -> str:
    """A folder with a tokenizer; with ``swapped``, two of its tokens have each other's ids."""
    folder.mkdir()
    description = json.loads(tiny.byte_level().to_str())
    vocab = description["model"]["vocab"]
    if swapped:
        vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (folder / "tokenizer.json").write_text(json.dumps(description))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": templates.CHATML})
    )
    return str(folder)


@pytest.mark.parametrize("odd", ["tokenizer", "engine", "detokenizer", "none"])
async def test_services_with_different_vocabularies_of_one_size_are_not_ready(odd: str, tmp_path: Path) -> None:
    usual, other = (_vocabulary(tmp_path / str(swapped), swapped=swapped) for swapped in (False, True))
    tokenizers = dict.fromkeys(("tokenizer", "engine", "detokenizer"), usual)
    if odd != "none":
        tokenizers[odd] = other
    async with real_stack(tokenizers=tokenizers, ready=odd == "none") as stack, stack.http() as client:
        ready = await client.get("/ready")
        if odd == "none":
            assert ready.status_code == 200
            return
        assert ready.status_code == 503
        message = ready.json()["error"]["message"]
        assert "the services have different vocabularies" in message
        hashes = dict(re.findall(r"(tokenizer|engine|detokenizer) ([0-9a-f]{12})", message))
        assert len(hashes) == 3
        assert [name for name in hashes if list(hashes.values()).count(hashes[name]) == 1] == [odd]
