from __future__ import annotations

from importlib.metadata import version

import httpx2
import pytest
from structlog.testing import capture_logs

from tests.gateway.running import HI, Peer, Stack, gateway_before, scripted_stack, until
from tests.gateway.scripted import ScriptedDetokenizer, ScriptedEngine, ScriptedTokenizer

SERVICES = ("tokenizer", "engine", "detokenizer")


async def ready(url: str) -> httpx2.Response:
    async with httpx2.AsyncClient() as client:
        return await client.get(f"{url}/ready", timeout=20)


def test_alive(shared: Stack) -> None:
    assert httpx2.get(f"{shared.url}/health").json() == {"status": "alive"}


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_head_for_load_balancers(shared: Stack, path: str) -> None:
    answer = httpx2.head(f"{shared.url}{path}")
    assert (answer.status_code, answer.content) == (200, b"")


def test_version(shared: Stack) -> None:
    assert httpx2.get(f"{shared.url}/version").json() == {"version": version("pellucid")}


def test_ready(shared: Stack) -> None:
    answer = httpx2.get(f"{shared.url}/ready")
    assert answer.status_code == 200
    assert set(answer.json()["peers"]) == set(SERVICES)


def test_metrics(shared: Stack) -> None:
    httpx2.post(
        f"{shared.url}/v1/chat/completions",
        json={"model": "simulated", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3},
    )
    answer = httpx2.get(f"{shared.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for name in (
        'vllm:time_to_first_token_seconds_count{model_name="simulated"}',
        'vllm:inter_token_latency_seconds_count{model_name="simulated"}',
        'vllm:e2e_request_latency_seconds_count{model_name="simulated"}',
        'pellucid_http_requests_total{code="",model_name="simulated",route="/v1/chat/completions",status="200"}',
        "pellucid_gateway_choices_running 0.0",
        'pellucid_peer_ready{address="',
    ):
        assert name in answer.text


def test_clients_cannot_create_time_series(shared: Stack) -> None:
    with httpx2.Client(base_url=shared.url) as client:

        def series() -> int:
            return len(client.get("/metrics").text.splitlines())

        def ask(number: int) -> None:
            body = {"model": f"model-{number}", "messages": HI, f"field-{number}": 1, "user": f"user-{number}"}
            client.post("/v1/chat/completions", json=body)
            client.get(f"/path-{number}")
            client.get(f"/v1/models/name-{number}")
            client.request("PURGE", "/v1/models")

        before = series()
        for number in range(100):
            ask(number)
        assert series() - before < 20


async def test_start_before_the_services() -> None:
    """The gateway starts first, names the missing services, and serves once all are ready."""
    peers = {
        "tokenizer": Peer(ScriptedTokenizer()),
        "engine": Peer(ScriptedEngine()),
        "detokenizer": Peer(ScriptedDetokenizer()),
    }
    for peer in peers.values():  # To reserve free ports.
        await peer.start()
        await peer.stop()
    async with gateway_before({name: peer.address for name, peer in peers.items()}) as (gateway, server, url):
        stack = Stack(gateway, url, server, {})
        absent = list(SERVICES)
        for name in SERVICES:
            answer = await ready(url)
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert all(each in answer.json()["error"]["message"] for each in absent)
            chat = await stack.chat()
            assert (chat.status_code, chat.json()["error"]["code"]) == (503, "unavailable")
            assert chat.headers["retry-after"]
            await peers[name].start()
            absent.remove(name)
            await until(lambda name=name: all(gateway.peers()[name].values()))  # type: ignore[misc]
        assert (await ready(url)).status_code == 200
        assert (await stack.chat()).status_code == 200
        for peer in peers.values():
            await peer.stop()


@pytest.mark.parametrize("service", SERVICES)
async def test_unready_service_is_named(service: str) -> None:
    async with scripted_stack() as stack:
        await stack.peer(service).health.publish(False)
        await until(lambda: not any(stack.gateway.peers()[service].values()))
        answer = await ready(stack.url)
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == f"not ready: {service}"
        await stack.peer(service).health.publish(True)
        await stack.until_ready()
        assert (await ready(stack.url)).status_code == 200


async def test_unsupported_tool_parser_is_not_ready() -> None:
    async with scripted_stack(tool_parser="nonsense") as stack:
        for answer in (await ready(stack.url), await stack.chat()):
            assert answer.status_code == 503
            assert "nonsense" in answer.json()["error"]["message"]
            assert "GATEWAY_TOOL_PARSER" in answer.json()["error"]["message"]
        async with stack.http() as client:
            assert (await client.get("/health")).status_code == 200


async def test_unsupported_reasoning_format_is_a_warning_of_ready() -> None:
    """The warning is logged and in the answer of ``/ready``, until another tokenizer replaces this one."""
    tokenizer = ScriptedTokenizer()
    tokenizer.info.reasoning_parser = "gemma4"
    with capture_logs() as logs:
        async with scripted_stack(tokenizer=tokenizer) as stack:
            answer = await ready(stack.url)
            assert answer.status_code == 200
            (warning,) = answer.json()["warnings"]
            assert "gemma4" in warning
            assert (await stack.chat()).status_code == 200
            peer = stack.peer("tokenizer")
            await peer.stop()
            await until(lambda: stack.gateway.deployment.tokenizers.infos == {})
            tokenizer.info.reasoning_parser = "think"
            await peer.start()
            await stack.until_ready()
            assert (await ready(stack.url)).json()["warnings"] == []
    assert [entry["warning"] for entry in logs if entry["log_level"] == "warning" and "warning" in entry] == [warning]


async def test_no_warning_with_reasoning_parser_none() -> None:
    tokenizer = ScriptedTokenizer()
    tokenizer.info.reasoning_parser = "gemma4"
    async with scripted_stack(tokenizer=tokenizer, reasoning_parser="none") as stack:
        assert (await ready(stack.url)).json()["warnings"] == []


async def test_restarted_engine_is_described_again() -> None:
    async with scripted_stack() as stack:
        engine = stack.peer("engine")
        await engine.stop()
        await until(lambda: stack.gateway.deployment.engines.infos == {})
        assert isinstance(engine.servicer, ScriptedEngine)
        engine.servicer.info.max_context_length = 1234
        await engine.start()
        await stack.until_ready()
        assert stack.gateway.deployment.find().model.max_context_length == 1234
