"""The Embed call of a real server on the loopback."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from transformers import AutoModel

from engine_svc.embedding.validation import MAX_INPUTS, MAX_TOKENS, MAX_WAITING_TOKENS
from engine_svc.step_engine import MAX_STEP_FAULTS
from protos.v1 import engine_pb2
from svclib.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    Overloaded,
    ServiceError,
    Unavailable,
    Unsupported,
)
from svclib.status import from_rpc_error
from tests.engine_svc import tiny, tiny_encoders
from tests.engine_svc.embedding.fakes import BAD_TOKEN, BlockingRunner, Failing, FakeRunner, Panicking
from tests.engine_svc.serving import Served, prompt, serving
from tests.numerics.test_embeddings import TEXTS, expected


def message(*texts: Iterable[int], **params: Any) -> engine_pb2.EmbedRequest:
    inputs = [engine_pb2.TokenizedInput(input_ids=text) for text in texts]
    return engine_pb2.EmbedRequest(request_id="r", inputs=inputs, **params)


async def embed(served: Served, request: engine_pb2.EmbedRequest, **options: Any) -> list[list[float]]:
    try:
        response = await served.stub.Embed(request, **options)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, peer="engine") from None
    assert all(len(one.values) == response.embedding_dim for one in response.embeddings)
    assert [one.prompt_tokens for one in response.embeddings] == [len(text.input_ids) for text in request.inputs]
    return [list(one.values) for one in response.embeddings]


async def begun(held: BlockingRunner) -> None:
    """Returns when a pass has begun."""
    assert await asyncio.to_thread(held.begun.acquire, timeout=30)


async def test_real_weights(tmp_path: Path) -> None:
    model = tiny_encoders.random_encoder(tiny_encoders.bert())
    async with serving(model=tiny.save(model, tmp_path), num_threads=1) as served:
        whole = await embed(served, message(*TEXTS))
        cut = await embed(served, message(*TEXTS, pooling="last", dimensions=5))
        raw = await embed(served, message(*TEXTS, normalize=False))

    for number, text in enumerate(TEXTS):
        np.testing.assert_allclose(whole[number], expected(model, text, "mean"), atol=1e-5)
        np.testing.assert_allclose(raw[number], expected(model, text, "mean", normalize=False), atol=1e-5)
        start = expected(model, text, "last", normalize=False)[:5]
        np.testing.assert_allclose(cut[number], start / np.linalg.norm(start), atol=1e-5)


async def test_a_decoder_embeds_when_told_to(tmp_path: Path) -> None:
    model = tiny.random_model(tiny.qwen3())
    async with serving(model=tiny.save(model, tmp_path), task="embed", dtype="float32", num_threads=1) as served:
        found = await embed(served, message(*TEXTS))
        info = await served.stub.GetModelInfo(engine_pb2.ModelInfoRequest())

    for vector, text in zip(found, TEXTS, strict=True):
        np.testing.assert_allclose(vector, expected(model.base_model, text, "last"), atol=1e-5)
    assert list(info.tasks) == ["embed"]
    assert info.model_type == "qwen3"


async def test_model_info_of_an_embedding_model(tmp_path: Path) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.roberta()), tmp_path)
    async with serving(model=folder, num_threads=1) as served:
        await served.until_health(serving=True)
        assert await served.stub.GetModelInfo(engine_pb2.ModelInfoRequest()) == engine_pb2.ModelInfo(
            model_path=folder, model_type="roberta", max_context_length=46, vocab_size=97, dtype="float32",
            tasks=["embed"],
        )  # fmt: skip


async def test_an_embedding_model_does_not_generate() -> None:
    async with serving(lambda _settings: FakeRunner()) as served:
        with pytest.raises(Unsupported, match="generation is not supported") as raised:
            await served.ask(prompt(max_tokens=3))
        assert raised.value.param == "model"


async def test_a_generating_model_does_not_embed() -> None:
    async with serving() as served:
        info = await served.stub.GetModelInfo(engine_pb2.ModelInfoRequest())
        assert list(info.tasks) == ["generate"]
        with pytest.raises(Unsupported, match=r"embeddings are not supported.*ENGINE_TASK") as raised:
            await embed(served, message([1]))
        assert raised.value.param == "model"


@pytest.mark.parametrize(
    ("request_", "error", "param"),
    [
        (message(), InvalidRequest, "input"),
        (message([1], []), InvalidRequest, "input.1"),
        (message([1], [2, 100]), InvalidRequest, "input.1"),
        (message([2**32 - 1]), InvalidRequest, "input.0"),
        (message([1] * 31), ContextLengthExceeded, "input.0"),
        (message(*[[1]] * (MAX_INPUTS + 1)), InvalidRequest, "input"),
        (message([1] * (MAX_TOKENS + 1)), InvalidRequest, "input"),
        (message([1], dimensions=0), InvalidRequest, "dimensions"),
        (message([1], dimensions=3), InvalidRequest, "dimensions"),
        (message([1], pooling=""), InvalidRequest, "pooling"),
        (message([1], pooling="max"), InvalidRequest, "pooling"),
    ],
    ids=["no text", "empty text", "unknown token", "greatest token", "too long", "too many", "too many tokens",
         "no dimensions", "too many dimensions", "empty pooling", "unknown pooling"],
)  # fmt: skip
async def test_invalid_input_never_reaches_a_pass(
    request_: engine_pb2.EmbedRequest, error: type[ServiceError], param: str
) -> None:
    told = FakeRunner()
    async with serving(lambda _settings: told) as served:
        with pytest.raises(InvalidRequest) as raised:
            await embed(served, request_)
        assert await embed(served, message([1, 2])) == [[3, 2]]

    assert type(raised.value) is error
    assert raised.value.param == param
    assert told.texts == [(1, 2)]


async def test_the_event_loop_is_free_while_a_pass_runs() -> None:
    held = BlockingRunner()
    async with serving(lambda _settings: held) as served:
        asking = [asyncio.create_task(embed(served, message([number] * 20))) for number in (1, 2)]
        await begun(held)
        await served.until(lambda loads: (loads.num_running_reqs, loads.num_waiting_reqs) == (1, 1))
        held.go.release(2)
        assert await asyncio.gather(*asking) == [[[20, 20]], [[40, 20]]]
        await served.until(lambda loads: (loads.num_running_reqs, loads.num_waiting_reqs) == (0, 0))


async def test_a_cancelled_request_is_not_computed_any_further() -> None:
    held = BlockingRunner()
    async with serving(lambda _settings: held) as served:
        leaving = served.stub.Embed(message(*[[1] * 20] * 5))
        await begun(held)
        leaving.cancel()
        await served.until(lambda loads: loads.num_running_reqs + loads.num_waiting_reqs == 1)
        asking = asyncio.create_task(embed(served, message([2])))
        held.go.release(2)
        assert await asking == [[2, 1]]

    assert held.texts == [(1,) * 20, (2,)]


async def test_a_deadline_ends_the_work_too() -> None:
    held = BlockingRunner()
    async with serving(lambda _settings: held) as served:
        with pytest.raises(DeadlineExceeded):
            await embed(served, message(*[[1] * 20] * 5), timeout=0.3)
        await served.until(lambda loads: loads.num_waiting_reqs == 0)
        held.go.release(2)
        assert await embed(served, message([2])) == [[2, 1]]

    assert held.texts == [(1,) * 20, (2,)]


async def test_the_queue_is_bounded() -> None:
    held = BlockingRunner()
    async with serving(lambda _settings: held) as served:
        most = message(*[[1] * 30] * (MAX_TOKENS // 30 // 8))  # an eighth of what one request may have
        calls = [served.stub.Embed(most) for _ in range(8 * MAX_WAITING_TOKENS // MAX_TOKENS)]
        await served.until(lambda loads: loads.num_running_reqs + loads.num_waiting_reqs == len(calls))
        with pytest.raises(Overloaded) as raised:
            await embed(served, message([1] * 30))
        assert raised.value.retry_after
        calls.pop().cancel()
        await served.until(lambda loads: loads.num_running_reqs + loads.num_waiting_reqs == len(calls))
        asking = asyncio.create_task(embed(served, message([2])))
        for call in calls:
            call.cancel()
        await served.until(lambda loads: loads.num_running_reqs + loads.num_waiting_reqs == 1)
        held.go.release(2)
        assert await asking == [[2, 1]]


async def test_a_bad_text_fails_its_request_alone() -> None:
    async with serving(lambda _settings: FakeRunner()) as served:
        with pytest.raises(InternalError):
            await embed(served, message([1], [BAD_TOKEN]))
        assert await embed(served, message([1])) == [[1, 1]]


async def test_draining_finishes_running_requests_and_refuses_new_ones() -> None:
    held = BlockingRunner()
    async with serving(lambda _settings: held) as served:
        asking = asyncio.create_task(embed(served, message([1])))
        await begun(held)
        draining = asyncio.create_task(served.service.drain())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="shutting down"):
            await embed(served, message([2]))
        assert not draining.done()
        held.go.release()
        assert await asking == [[1, 1]]
        await draining


async def test_a_stall_shows_in_health_and_passes() -> None:
    held = BlockingRunner()
    async with serving(lambda _settings: held, stall_seconds=0.1) as served:
        asking = asyncio.create_task(embed(served, message([1])))
        await served.until_health(serving=False)
        held.go.release()
        await served.until_health(serving=True)
        assert await asking == [[1, 1]]


@pytest.mark.parametrize(
    ("model", "num_survived"), [(Failing(times=MAX_STEP_FAULTS), MAX_STEP_FAULTS - 1), (Panicking(), 0)]
)
async def test_a_failed_engine_reports_not_ready_and_ends_the_process(model: FakeRunner, num_survived: int) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    try:
        async with serving(lambda _settings: model) as served:
            for _ in range(num_survived):
                with pytest.raises(InternalError):
                    await embed(served, message([1]))
            with pytest.raises(Unavailable):
                await embed(served, message([1]))
            await served.until_health(serving=False)
            with pytest.raises(Unavailable, match="engine failed"):
                await embed(served, message([1]))
            async with asyncio.timeout(10):
                await told.wait()
            assert served.service.failed
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_a_large_answer_arrives(minilm: Path) -> None:
    model = AutoModel.from_pretrained(minilm).eval()
    async with serving(model=str(minilm), max_num_batched_tokens=2048) as served:
        found = await embed(served, message(*[[101, 2000 + number, 102] for number in range(500)]))

    assert len(found) == 500
    np.testing.assert_allclose(found[499], expected(model, [101, 2499, 102], "mean"), atol=1e-5)
