"""Invalid input is a 4xx that names the field, and the next valid request works."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.hostile import ALL, HI, PING, Hostile
from tests.stack import Stack


def send(stack: Stack, path: str, body: bytes | None, headers: dict[str, str], method: str = "POST") -> Any:
    """Status, headers and parsed body of an answer."""
    connection = http.client.HTTPConnection(urlsplit(stack.url).netloc, timeout=30)
    # The server may refuse before it has read the whole body; its response can still be read.
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def chat(stack: Stack, body: bytes, headers: dict[str, str] | None = None) -> Any:
    return send(stack, "/v1/chat/completions", body, {"content-type": "application/json"} | (headers or {}))


def good_request_works(stack: Stack) -> None:
    body = {"model": "simulated", "messages": HI, "simulate": {"steps": ["fine"]}}
    status, _, text = chat(stack, json.dumps(body).encode())
    assert status == 200, text
    assert json.loads(text)["choices"][0]["message"]["content"] == "fine"


@pytest.mark.parametrize("hostile", ALL, ids=lambda hostile: hostile.name[:50])
def test_bad_input_is_refused_with_its_parameter(simulated: Stack, hostile: Hostile) -> None:
    body = hostile.body("simulated").replace(b"MODEL", b"simulated")
    status, headers, text = chat(simulated, body, hostile.headers)
    assert status in hostile.status, text[:500]
    assert len(text) < 4096
    assert headers["content-type"].startswith("application/json")
    assert headers["x-request-id"]
    error = json.loads(text)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    if hostile.param is not None:
        assert error["param"] == hostile.param, error
    good_request_works(simulated)


@pytest.mark.parametrize("stream", [True, False])
def test_errors_come_before_the_status_line_also_for_streams(simulated: Stack, stream: bool) -> None:
    body = {"model": "simulated", "messages": HI, "stream": stream, "n": 0}
    status, headers, _ = chat(simulated, json.dumps(body).encode())
    assert status == 400
    assert headers["content-type"].startswith("application/json")


def test_a_prompt_beyond_the_context(simulated: Stack) -> None:
    body = {"model": "simulated", "messages": [{"role": "user", "content": "x" * 1_000_000}]}
    for _ in range(20):
        status, _, text = chat(simulated, json.dumps(body).encode())
        assert status == 400
        assert json.loads(text)["error"]["code"] == "context_length_exceeded"
    good_request_works(simulated)


def test_prompt_and_max_tokens_beyond_the_context_gives_both_numbers(simulated: Stack) -> None:
    body = {"model": "simulated", "messages": HI, "max_tokens": 1_000_000}
    status, _, text = chat(simulated, json.dumps(body).encode())
    error = json.loads(text)["error"]
    assert (status, error["param"]) == (400, "max_tokens")
    assert "1000000" in error["message"].replace(",", "")


def test_unknown_fields_are_named_in_a_header(simulated: Stack) -> None:
    body = {"model": "simulated", "messages": HI, "simulate": {"steps": ["x"]}, "frobnicate": 1, "zoom": None}
    status, headers, _ = chat(simulated, json.dumps(body).encode())
    assert status == 200
    assert "frobnicate" in headers["x-pellucid-ignored"]


def test_template_variables_that_are_never_read_are_named_too(simulated: Stack) -> None:
    body = {"model": "simulated", "messages": HI, "simulate": {"steps": ["x"]}}
    kwargs = {"enable_thinking": False, "frobnicate": 1}
    status, headers, _ = chat(simulated, json.dumps(body | {"chat_template_kwargs": kwargs}).encode())
    assert (status, headers["x-pellucid-ignored"]) == (200, "chat_template_kwargs.frobnicate")


def test_fields_without_effect_on_the_output_are_accepted(simulated: Stack) -> None:
    body = {
        "model": "simulated", "messages": HI, "simulate": {"steps": ["x"]}, "user": "u", "metadata": {"a": "b"},
        "store": False, "service_tier": "auto", "safety_identifier": "s", "prompt_cache_key": "k",
    }  # fmt: skip
    status, headers, _ = chat(simulated, json.dumps(body).encode())
    assert status == 200
    assert "x-pellucid-ignored" not in headers


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_effort": "none"},
        {"enable_thinking": False},
        {"thinking": {"type": "disabled"}},
        {"reasoning": {"enabled": False}},
        {"reasoning": {"effort": "none"}},
        {"thinking_budget": 0},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
    ids=str,
)
def test_reasoning_can_be_switched_off(simulated: Stack, real: Stack, fields: dict[str, Any]) -> None:
    """The template of one model has the switch; the other model does not reason."""
    for stack, model in ((simulated, "simulated"), (real, "smollm2-135m-instruct")):
        body = {"model": model, "messages": HI, "max_tokens": 1} | fields
        status, headers, text = chat(stack, json.dumps(body).encode())
        assert status == 200, text
        assert "x-pellucid-ignored" not in headers


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_effort": "low"},
        {"enable_thinking": True},
        {"thinking": {"type": "enabled"}},
        {"reasoning": {"enabled": True}},
        {"chat_template_kwargs": {"enable_thinking": True}},
    ],
    ids=str,
)
def test_reasoning_is_refused_for_a_model_without_it(real: Stack, fields: dict[str, Any]) -> None:
    body = {"model": "smollm2-135m-instruct", "messages": HI, "max_tokens": 1} | fields
    status, _, text = chat(real, json.dumps(body).encode())
    assert status == 400
    error = json.loads(text)["error"]
    assert error["param"].startswith(next(iter(fields)))
    assert "does not support thinking" in error["message"]


CALL = {"id": "c1", "type": "function", "function": {"name": "ping", "arguments": ""}}


@pytest.mark.parametrize(
    "turns",
    [
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}],
        [{"role": "assistant", "content": None, "refusal": "I cannot."}],
        [{"role": "assistant", "content": []}],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
    ],
    ids=lambda turns: json.dumps(turns)[:80],
)
def test_history_from_other_servers(simulated: Stack, real: Stack, turns: list[Any]) -> None:
    for stack, model in ((simulated, "simulated"), (real, "smollm2-135m-instruct")):
        body = {"model": model, "messages": [*HI, *turns, *HI], "max_tokens": 1}
        status, headers, text = chat(stack, json.dumps(body).encode())
        assert status == 200, text
        assert "x-pellucid-ignored" not in headers


def test_a_call_without_arguments_and_its_result(simulated: Stack) -> None:
    turns = [*HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    turns.append({"role": "tool", "tool_call_id": "c1", "content": "sunny"})
    body = {"model": "simulated", "messages": turns, "tools": [PING], "max_tokens": 1}
    status, _, text = chat(simulated, json.dumps(body).encode())
    assert status == 200, text


def test_null_means_absent(simulated: Stack) -> None:
    names = ("temperature", "top_p", "n", "stop", "seed", "max_tokens", "tools", "tool_choice", "logit_bias", "stream")
    body = {"model": "simulated", "messages": HI, "simulate": {"steps": ["x"]}} | dict.fromkeys(names)
    assert chat(simulated, json.dumps(body).encode())[0] == 200


def test_empty_tools_are_no_tools(simulated: Stack) -> None:
    body = {"model": "simulated", "messages": HI, "tools": [], "simulate": {"steps": ["x"]}}
    assert chat(simulated, json.dumps(body).encode())[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/v1/chat/completions", 405), ("DELETE", "/v1/models", 405)],
)
def test_wrong_routes_have_the_same_error_body(simulated: Stack, method: str, path: str, status: int) -> None:
    got, _, text = send(simulated, path, None, {}, method)
    assert got == status
    assert json.loads(text)["error"]["message"]


def test_huge_headers_are_431(simulated: Stack) -> None:
    address = urlsplit(simulated.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as raw:
        with suppress(BrokenPipeError, ConnectionResetError):
            raw.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Big: " + b"a" * 1_000_000 + b"\r\n\r\n")
        try:
            answer = raw.recv(4096)
        except ConnectionResetError:
            answer = b""
    assert answer.startswith(b"HTTP/1.1 431")
    good_request_works(simulated)


def test_an_emoji_from_a_surrogate_pair_is_fine(simulated: Stack) -> None:
    body = b'{"model":"simulated","messages":[{"role":"user","content":"\\ud83d\\ude00"}],"max_tokens":1}'
    assert chat(simulated, body)[0] == 200


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "content": "Hello, who are you?"}],
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "system", "content": "only this"}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": []}],
    ],
)
def test_odd_conversations_are_answered_or_refused(simulated: Stack, real: Stack, messages: list[Any]) -> None:
    for stack, model in ((simulated, "simulated"), (real, "smollm2-135m-instruct")):
        status, _, text = chat(stack, json.dumps({"model": model, "messages": messages, "max_tokens": 1}).encode())
        assert status in {200, 400}, text
