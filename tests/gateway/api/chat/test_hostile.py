"""Bad requests over HTTP: each is a 4xx that names the field, and the next good request succeeds."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from tests.gateway.running import Stack

HI: list[Any] = [{"role": "user", "content": "hi"}]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}


@dataclass(frozen=True, slots=True)
class Bad:
    """A request with one fault. ``param`` is the field that the answer must name; None: no field."""

    name: str
    body: bytes
    param: str | None = None
    status: int = 400
    headers: dict[str, str] = field(default_factory=dict)


def fields(param: str, **given: Any) -> Bad:
    body = {"model": "simulated", "messages": HI, "max_tokens": 2} | given
    return Bad(f"{param} {json.dumps(given)}"[:70], json.dumps(body).encode(), param)


def message(place: str, **given: Any) -> Bad:
    return fields(f"messages[0]{place}", messages=[given])


def literal(name: str, value: bytes, param: str | None = None) -> Bad:
    """A raw JSON value that no JSON writer would produce."""
    start = b'{"model":"simulated","messages":[{"role":"user","content":"hi"}],"'
    return Bad(f"{name} {value.decode(errors='replace')}"[:70], start + name.encode() + b'":' + value + b"}", param)


NUMBERS = [
    fields(name, **{name: value})
    for name, values in {
        "temperature": [-0.1, 2.1, "1", True, [1], {}, 10**400],
        "top_p": [-1, 1.01, "0.5", False],
        "top_k": [-2, 1.5, "40", 10**30, True],
        "min_p": [-0.1, 1.1, "0"],
        "presence_penalty": [-2.1, 2.1, "x"],
        "frequency_penalty": [9, -9, [0]],
        "repetition_penalty": [0, -1, 1000, "1"],
        "seed": [1.5, "7", 2**63, -(2**63) - 1, 2**70, True],
        "n": [0, -1, 1.5, "2", 129, 10**9, 2**64, True],
        "max_tokens": [0, -1, 1.5, "16", 2**31, 10**9, 8192, True],
        "max_completion_tokens": [0, "16", 10**9],
        "min_tokens": [-1, 3, "0"],
        "top_logprobs": [2, 21, -1, "5", True],
    }.items()
    for value in values
]

OTHERS = [
    fields("model", model=None), fields("model", model=7), fields("model", model=""), fields("model", model=["m"]),
    fields("stream", stream="yes"), fields("stream", stream=1),
    fields("stream_options", stream_options={"include_usage": True}), fields("stream_options", stream_options=[]),
    fields("logprobs", logprobs=1), fields("logprobs", logprobs="true"),
    fields("ignore_eos", ignore_eos="no"), fields("skip_special_tokens", skip_special_tokens=0),
    fields("stop", stop=[""]), fields("stop", stop=""), fields("stop", stop=["a"] * 5), fields("stop", stop=[1]),
    fields("stop", stop={"a": 1}), fields("stop", stop="x" * 100_000), fields("stop", stop=[None]),
    fields("stop_token_ids", stop_token_ids=[-1]), fields("stop_token_ids", stop_token_ids=["a"]),
    fields("stop_token_ids", stop_token_ids=[99_999_999]), fields("stop_token_ids", stop_token_ids=[259]),
    fields("logit_bias", logit_bias={"99999999": 5}), fields("logit_bias", logit_bias={"259": 5}),
    fields("logit_bias", logit_bias={"5": 101}), fields("logit_bias", logit_bias={"x": 1}),
    fields("logit_bias", logit_bias={"-1": 1}), fields("logit_bias", logit_bias=[1]),
    fields("logit_bias", logit_bias={"5": "1"}), fields("logit_bias", logit_bias={"5": None}),
    fields("metadata", metadata={"a": 1}), fields("metadata", metadata={"k" * 65: "v"}),
    fields("user", user=5), fields("user", user="x" * 100_000),
    fields("tools", tools={}), fields("tools[0]", tools=[5]), fields("tools[0].type", tools=[{}]),
    fields("tools[0].function", tools=[{"type": "function"}]),
    fields("tools[0].function.name", tools=[{"type": "function", "function": {"name": "no spaces"}}]),
    fields("tools[1].function.name", tools=[TOOL, TOOL]),
    fields("tools[0].function.parameters", tools=[{"type": "function", "function": {"name": "f", "parameters": 5}}]),
    fields("tools[0].function.parameters", tools=[{"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "properties": []}}}]),
    fields("tool_choice", tool_choice="required"), fields("tool_choice", tool_choice="required", tools=[]),
    fields("tool_choice", tool_choice="sometimes"), fields("tool_choice", tool_choice=5),
    fields("tool_choice", tools=[TOOL], tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}),
    fields("tool_choice", tool_choice={"type": "function", "function": {"name": "g"}}, tools=[TOOL]),
    fields("parallel_tool_calls", parallel_tool_calls="no", tools=[TOOL]),
    fields("response_format", response_format={"type": "yaml"}),
    fields("response_format", response_format={"type": "json_schema", "strict": True, "schema": {"type": "object"}}),
    fields("response_format", response_format={"type": "json_schema", "json_schema": {"name": "x"}}),
    fields("chat_template", chat_template="{{ 1 }}"), fields("chat_template_kwargs", chat_template_kwargs=[1]),
    fields("chat_template_kwargs", chat_template_kwargs={"messages": [], "tools": [], "bos_token": "x"}),
    fields("continue_final_message", continue_final_message=True),
    fields("reasoning_effort", reasoning_effort="high"), fields("thinking_budget_tokens", thinking_budget_tokens=5),
    fields("enable_thinking", thinking=False, enable_thinking=True), fields("modalities", modalities=["audio"]),
    fields("store", store=True), fields("echo", echo=True), fields("best_of", best_of=2),
    fields("simulate", simulate=5), fields("simulate.steps", simulate={}),
    fields("simulate.steps[0].hex", simulate={"steps": [{"hex": "zz"}]}),
]  # fmt: skip

MESSAGES = [
    fields("messages", messages=[]), fields("messages", messages=None), fields("messages", messages="hi"),
    fields("messages", messages={"role": "user", "content": "hi"}), fields("messages", messages=HI * 5000),
    fields("messages[0]", messages=[5]), fields("messages[0]", messages=[None]), fields("messages[0]", messages=[[]]),
    message(".role", content="hi"), message(".role", role="alien", content="hi"), message(".role", role=5, content="x"),
    message(".content", role="user"), message(".content", role="user", content=None),
    message(".content", role="user", content=7), message(".content", role="user", content={"text": "hi"}),
    message(".refusal", role="user", content="x", refusal="no"), message(".prefix", role="assistant", prefix=True),
    message(".content[0]", role="user", content=["hi"]),
    message(".content[0].text", role="user", content=[{"type": "text"}]),
    message(".content[0].type", role="user", content=[{"type": "smell"}]),
    message(".content[0]", role="user", content=[{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x"}}]),
    message(".content[0]", role="user", content=[{"type": "input_audio", "input_audio": {}}]),
    message(".tool_calls", role="user", content="x", tool_calls=5),
    message(".tool_call_id", role="tool", content="x"),
    message(".tool_call_id", role="tool", content="x", tool_call_id="c"),
    fields("messages[0].role", messages=[{"role": 5, "content": 7}] * 200),
]  # fmt: skip

RAW = [
    Bad("no body", b""),
    Bad("white space", b"  \n "),
    Bad("unfinished", b'{"model":'),
    Bad("an array", b"[]"),
    Bad("a number", b"5"),
    Bad("a string", b'"hi"'),
    Bad("null", b"null"),
    Bad("not UTF-8", b'{"model":"simulated","user":"\xff\xfe"}'),
    Bad("UTF-16", json.dumps({"model": "m"}).encode("utf-16")),
    Bad("a byte order mark", b"\xef\xbb\xbf{}"),
    Bad("comments", b'{"model": "m" /* hi */}'),
    Bad("a trailing comma", b'{"model": "m",}'),
    Bad("a control character", b'{"model": "m\x01"}'),
    Bad("deep lists", b'{"model":"m","messages":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
    Bad("deep objects", b'{"a":' * 20_000 + b"1" + b"}" * 20_000),
    Bad("deep and open", b"[" * 1_000_000),
    Bad("many values", b'{"a":[' + b"[]," * 2_000_000 + b"[]]}"),
    literal("temperature", b"NaN", "temperature"),
    literal("top_p", b"Infinity", "top_p"),
    literal("top_p", b"-Infinity", "top_p"),
    literal("temperature", b"1e999", "temperature"),
    literal("seed", b"1" * 5000, "seed"),
    literal("user", b'"\\udfff"', "user"),
    literal("stop", b'["a", "\\ud800"]', "stop[1]"),
    Bad(
        "half a character",
        b'{"model":"simulated","messages":[{"role":"user","content":"a\\ud800b"}]}',
        "messages[0].content",
    ),
    Bad("text", b"{}", status=415, headers={"content-type": "text/plain"}),
    Bad("a form", b"a=1", status=415, headers={"content-type": "application/x-www-form-urlencoded"}),
    Bad("a latin-1 body", b"{}", status=415, headers={"content-type": "application/json; charset=latin-1"}),
    Bad("compressed", b"{}", status=415, headers={"content-encoding": "gzip"}),
    Bad("large", b'{"x":"' + b"a" * (9 * 2**20) + b'"}', status=413),
    Bad("an unknown model", json.dumps({"model": "x" * 100_000, "messages": HI}).encode(), "model", status=404),
]

ALL = [*NUMBERS, *OTHERS, *MESSAGES, *RAW]


def ask(stack: Stack, body: bytes, headers: dict[str, str]) -> httpx2.Response:
    headers = {"content-type": "application/json"} | headers
    return httpx2.post(f"{stack.url}/v1/chat/completions", content=body, headers=headers, timeout=30)


def good_request_works(stack: Stack) -> None:
    body = json.dumps({"model": "simulated", "messages": HI, "simulate": {"steps": ["fine"]}}).encode()
    assert ask(stack, body, {}).json()["choices"][0]["message"]["content"] == "fine"


def test_number_of_bad_requests() -> None:
    assert len({bad.body for bad in ALL}) > 150


@pytest.mark.parametrize("bad", ALL, ids=lambda bad: bad.name)
def test_bad_requests_name_the_field(shared: Stack, bad: Bad) -> None:
    answer = ask(shared, bad.body, bad.headers)
    assert answer.status_code == bad.status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    assert len(answer.content) < 4096
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["param"] == bad.param
    good_request_works(shared)


@pytest.mark.parametrize("seed", range(40))
def test_corrupted_bodies_are_not_server_errors(shared: Stack, seed: int) -> None:
    """A valid body with some bytes changed, removed or doubled."""
    chance = random.Random(seed)
    body = bytearray(
        json.dumps(
            {
                "model": "simulated", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
                "max_tokens": 2, "temperature": 0.5, "stop": ["x"], "logit_bias": {"5": 1}, "tools": [TOOL], "n": 2,
            }
        ).encode()
    )  # fmt: skip
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(body))
        match chance.choice(["change", "remove", "double"]):
            case "change":
                body[place] = chance.randrange(256)
            case "remove":
                del body[place : place + chance.randint(1, 8)]
            case "double":
                body[place:place] = body[place : place + chance.randint(1, 8)]
    answer = ask(shared, bytes(body), {})
    assert answer.status_code in {200, 400, 404}, answer.text
    good_request_works(shared)
