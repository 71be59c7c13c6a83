"""The official client and plain HTTP, with the real services and the simulated model."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from openai import OpenAI

from tests.gateway.running import Stack
from tests.gateway.sse import Answer, collect

HI: list[Any] = [{"role": "user", "content": "hi"}]
WEATHER: list[Any] = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def script(*steps: Any, **more: Any) -> dict[str, Any]:
    return {"simulate": {"steps": list(steps), **more}}


@pytest.fixture
def client(shared: Stack) -> OpenAI:
    return OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0, timeout=20)


def post(stack: Stack, headers: dict[str, str] | None = None, **fields: Any) -> httpx2.Response:
    body = {"model": "simulated", "messages": HI} | fields
    return httpx2.post(f"{stack.url}/v1/chat/completions", json=body, headers=headers, timeout=20)


def stream(stack: Stack, **fields: Any) -> Answer:
    response = post(stack, stream=True, **fields)
    assert response.status_code == 200, response.text
    return collect(response.text)


ASKS: list[dict[str, Any]] = [
    script("ABC ", "DEF", {"hex": "f09f"}, {"hex": "94a5"}),
    script("ABC ", "DEFX") | {"stop": ["DE"]},
    script("a", "a", "a", "b", "c") | {"stop": "aab"},
    script("ABC ", "DEF", "G", "HI", "J", "K", repeat=20) | {"stop": ["DEFGHIJ"]},
    script("x", repeat=50, finish="length"),
    script({"hex": "41"}, {"hex": "f09f"}, finish="length"),
    script("<think>", "hm", "</think>", "Yes."),
    script("<think>never closed", finish="length"),
    script(CALL) | {"tools": WEATHER},
    script("Let me see. ", *CALL) | {"tools": WEATHER},
    script("<think>hm</think>", CALL, CALL) | {"tools": WEATHER},
    script(*CALL) | {"tools": WEATHER, "tool_choice": "none"},
    script(*CALL) | {"tools": WEATHER, "tool_choice": "required"},
    script(CALL, CALL) | {"tools": WEATHER, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
    script('{"a', '": 1}') | {"response_format": {"type": "json_object"}},
    script("abc", "def") | {"logprobs": True, "top_logprobs": 2},
    script({"hex": "f09f"}, {"hex": "9494"}, finish="length") | {"logprobs": True, "top_logprobs": 2},
    script(),
    {"max_tokens": 30, "seed": 5},
    {"max_tokens": 30, "seed": 5, "n": 3, "stop": ["a"]},
    {"max_tokens": 10, "seed": 5, "n": 5, "logprobs": True},
]


@pytest.mark.parametrize("ask", ASKS, ids=str)
def test_stream_and_answer_are_equal(shared: Stack, ask: dict[str, Any]) -> None:
    answer = post(shared, **ask).json()
    streamed = stream(shared, **ask, stream_options={"include_usage": True})
    assert streamed.done
    assert streamed.usage["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert streamed.usage["completion_tokens"] == answer["usage"]["completion_tokens"]
    assert streamed.usage["completion_tokens_details"] == answer["usage"]["completion_tokens_details"]
    assert sorted(streamed.choices) == [choice["index"] for choice in answer["choices"]] == [*range(ask.get("n", 1))]
    for choice in answer["choices"]:
        seen, message = streamed.choices[choice["index"]], choice["message"]
        assert seen.finish_reason == choice["finish_reason"]
        assert seen.content == (message["content"] or "")
        assert seen.reasoning == message.get("reasoning", "")
        assert seen.logprobs == (choice["logprobs"]["content"] if choice["logprobs"] else [])
        calls = [{"name": call["name"], "arguments": call["arguments"]} for _, call in sorted(seen.calls.items())]
        assert calls == [call["function"] for call in message.get("tool_calls", ())]


def test_the_body_of_an_answer(shared: Stack) -> None:
    response = post(shared, **script("Hello"), seed=7)
    answer = response.json()
    assert set(answer) == {
        "id", "object", "created", "model", "system_fingerprint", "choices", "usage", "seed",
    }  # fmt: skip
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["seed"] == 7
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert set(usage["prompt_tokens_details"]) == {"cached_tokens"}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert response.headers["content-type"] == "application/json"


def test_the_headers_of_a_stream(shared: Stack) -> None:
    response = post(shared, **script("Hello"), stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"


def test_reasoning_tokens_are_counted(shared: Stack) -> None:
    usage = post(shared, **script("<think>", "hm", "</think>", "Yes.")).json()["usage"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]


def test_cached_tokens_in_usage(shared: Stack) -> None:
    messages = [{"role": "user", "content": "a prompt that is long enough for a few blocks " * 4}]
    first = post(shared, **script("x"), messages=messages).json()["usage"]
    second = post(shared, **script("x"), messages=messages).json()["usage"]
    assert second["prompt_tokens_details"]["cached_tokens"] > first["prompt_tokens_details"]["cached_tokens"]
    assert second["prompt_tokens_details"]["cached_tokens"] < second["prompt_tokens"]


def test_drawn_seed_reproduces_the_output(shared: Stack) -> None:
    first = post(shared, max_tokens=20, temperature=1).json()
    again = post(shared, max_tokens=20, temperature=1, seed=first["seed"]).json()
    assert again["choices"] == first["choices"]
    assert again["seed"] == first["seed"]


@pytest.mark.parametrize("seed", [0, -1, -(2**63), 2**63 - 1])
def test_seed_is_returned(shared: Stack, seed: int) -> None:
    assert post(shared, max_tokens=1, seed=seed).json()["seed"] == seed
    assert stream(shared, max_tokens=1, seed=seed).seed == seed


def test_usage_in_every_chunk(shared: Stack) -> None:
    asked = {"include_usage": True, "continuous_usage_stats": True}
    answer = stream(shared, **script("a", "b", "c", finish="length"), stream_options=asked)
    counts = [usage["completion_tokens"] for usage in answer.usages]
    assert counts == sorted(counts)
    assert answer.usage["completion_tokens"] == counts[-1] == 3


def test_requested_model_name_is_returned(shared: Stack) -> None:
    for name in ("simulated", "sim", "org/sim"):
        assert post(shared, model=name, max_tokens=1).json()["model"] == name


def test_unknown_models(shared: Stack) -> None:
    response = post(shared, model="gpt-9")
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_ids_differ(shared: Stack) -> None:
    ids = {post(shared, max_tokens=1, headers={"x-request-id": "same"}).json()["id"] for _ in range(3)}
    assert len(ids) == 3


def test_ignored_fields_are_named(shared: Stack) -> None:
    names: dict[str, Any] = {"frobnicate": 1, "ümläut": 1, "a b,c": 1, "x\r\ny: z": 1, "l" * 500: 1}
    for streaming in (False, True):
        response = post(shared, max_tokens=1, stream=streaming, **names)
        assert response.status_code == 200
        shown = response.headers["x-pellucid-ignored"].split(", ")
        assert shown[0] == "frobnicate"
        assert len(shown) == len(names)
        assert all(len(name) < 500 for name in shown)
    fields: dict[str, Any] = {f"field{number}": 1 for number in range(5000)}
    many = post(shared, max_tokens=1, **fields)
    assert many.headers["x-pellucid-ignored"].endswith("and 4984 more")
    assert "x-pellucid-ignored" not in post(shared, max_tokens=1).headers


def test_the_sdk_collects_a_stream_of_a_call(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="simulated", messages=HI, tools=WEATHER, extra_body=script(*CALL)
    ) as events:
        final = events.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert (call.type, call.function.name, call.function.arguments) == ("function", "get_weather", '{"city": "Paris"}')
    assert call.id
    assert final.choices[0].finish_reason == "tool_calls"


def test_the_sdk_reads_log_probabilities(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="simulated", messages=HI, logprobs=True, top_logprobs=3, max_tokens=4, seed=1
    )
    assert answer.choices[0].logprobs is not None
    entries = answer.choices[0].logprobs.content or []
    assert len(entries) == 4
    assert all(len(entry.top_logprobs) == 3 for entry in entries)
    assert all(top.logprob <= 0 for entry in entries for top in entry.top_logprobs)


def test_conversation_with_a_tool_result(client: OpenAI) -> None:
    call: Any = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'}}
    answer = client.chat.completions.create(
        model="simulated",
        messages=[
            {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": " brief."}]},
            *HI,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        tools=WEATHER,
        extra_body=script("It is sunny."),
    )
    assert answer.choices[0].message.content == "It is sunny."


def test_service_errors_keep_the_field_path(shared: Stack) -> None:
    bad_call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}
    response = post(shared, messages=[*HI, {"role": "assistant", "tool_calls": [bad_call]}])
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


@pytest.mark.parametrize("stream", [False, True])
def test_prompt_or_max_tokens_beyond_the_context(shared: Stack, stream: bool) -> None:
    long = post(shared, messages=[{"role": "user", "content": "x" * 100_000}], stream=stream)
    assert long.status_code == 400
    assert (long.json()["error"]["code"], long.json()["error"]["param"]) == ("context_length_exceeded", "messages")
    much = post(shared, max_completion_tokens=8192, stream=stream)
    assert (much.status_code, much.json()["error"]["param"]) == (400, "max_completion_tokens")
    assert "8192" in much.json()["error"]["message"]


def test_tool_choice_none_hides_the_tools(shared: Stack) -> None:
    offered = post(shared, tools=WEATHER, **script("x")).json()["usage"]["prompt_tokens"]
    hidden = post(shared, tools=WEATHER, tool_choice="none", **script("x")).json()["usage"]["prompt_tokens"]
    assert hidden == post(shared, **script("x")).json()["usage"]["prompt_tokens"] < offered
