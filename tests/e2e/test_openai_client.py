"""The official Python client against the whole stack."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from tests.stack import Stack

HELLO: list[Any] = [{"role": "user", "content": "hi"}]
WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "the weather in a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def script(*steps: Any, **more: Any) -> dict[str, Any]:
    return {"simulate": {"steps": list(steps), **more}}


def collect(chunks: Any) -> dict[int, dict[str, Any]]:
    """Collect the choices of a stream, and assert the rules for chunks."""
    choices: dict[int, dict[str, Any]] = {}
    ids = set()
    for chunk in chunks:
        ids.add((chunk.id, chunk.created, chunk.model, chunk.object))
        for choice in chunk.choices:
            first = choice.index not in choices
            seen = choices.setdefault(choice.index, {"content": "", "reasoning": "", "finish": None, "logprobs": []})
            assert seen["finish"] is None, "a chunk after the last one of its choice"
            assert (choice.delta.role == "assistant") == first
            seen["content"] += choice.delta.content or ""
            seen["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
            seen["finish"] = choice.finish_reason
            seen["logprobs"] += choice.logprobs.content if choice.logprobs else []
    assert len(ids) == 1
    return choices


def test_an_answer_from_the_real_model(real: Stack) -> None:
    answer = real.client().chat.completions.create(
        model="smollm2-135m-instruct",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=40,
    )
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert answer.usage is not None
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens == answer.usage.total_tokens


def test_stream_and_answer_agree_on_the_real_model(real: Stack) -> None:
    client = real.client()
    ask: dict[str, Any] = {
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": "Name three colours."}],
        "temperature": 0.8,
        "seed": 7,
        "n": 2,
        "max_tokens": 24,
        "logprobs": True,
        "top_logprobs": 3,
    }
    answer = client.chat.completions.create(**ask)
    with client.chat.completions.create(**ask, stream=True) as stream:
        choices = collect(stream)
    assert sorted(choices) == [0, 1]
    for choice in answer.choices:
        seen = choices[choice.index]
        assert seen["content"] == choice.message.content
        assert seen["finish"] == choice.finish_reason
        assert choice.logprobs is not None
        assert [entry.token for entry in seen["logprobs"]] == [entry.token for entry in choice.logprobs.content or []]
    assert answer.choices[0].message.content != answer.choices[1].message.content


def test_the_same_seed_gives_the_same_answer_and_another_seed_another(real: Stack) -> None:
    client = real.client()

    def ask(seed: int) -> str | None:
        answer = client.chat.completions.create(
            model="smollm2-135m-instruct", messages=HELLO, temperature=1.0, seed=seed, max_tokens=16
        )
        return answer.choices[0].message.content

    assert ask(1) == ask(1)
    assert len({ask(seed) for seed in range(4)}) > 1


def test_a_script_is_emitted(simulated: Stack) -> None:
    answer = simulated.client().chat.completions.create(
        model="simulated", messages=HELLO, extra_body=script("ABC ", "DEF", {"hex": "f09f"}, {"hex": "94a5"})
    )
    assert answer.choices[0].message.content == "ABC DEF🔥"
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(simulated: Stack, stream: bool) -> None:
    answer: Any = simulated.client().chat.completions.create(
        model="simulated",
        messages=HELLO,
        stop=["DEFGHIJ"],
        stream=stream,
        extra_body=script("ABC ", "DEF", "G", "HI", "J", "K", repeat=50),
    )
    if stream:
        assert collect(answer)[0]["content"] == "ABC "
    else:
        assert answer.choices[0].message.content == "ABC "
        assert answer.choices[0].finish_reason == "stop"


def test_one_choice_may_stop_before_the_others(simulated: Stack) -> None:
    answer = simulated.client().chat.completions.create(
        model="simulated", messages=HELLO, n=3, max_tokens=40, stop=["a"], seed=5
    )
    assert len(answer.choices) == 3
    for choice in answer.choices:
        assert "a" not in (choice.message.content or "")
        assert choice.finish_reason in {"stop", "length"}


def test_usage_in_a_stream(simulated: Stack) -> None:
    client = simulated.client()
    ask: dict[str, Any] = {"model": "simulated", "messages": HELLO, "extra_body": script("a", "b", "c")}
    answer = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert answer.usage is not None
    assert chunks[-1].usage.total_tokens == answer.usage.total_tokens
    assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
    without = list(client.chat.completions.create(**ask, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in without)


def test_logprobs_of_partial_characters_have_bytes(simulated: Stack) -> None:
    answer = simulated.client().chat.completions.create(
        model="simulated",
        messages=HELLO,
        logprobs=True,
        top_logprobs=2,
        extra_body=script({"hex": "f09f"}, {"hex": "9494"}, finish="length"),
    )
    assert answer.choices[0].logprobs is not None
    entries = answer.choices[0].logprobs.content or []
    joined = b"".join(bytes(entry.bytes or []) for entry in entries)
    assert joined == bytes.fromhex("f09f9494")
    assert all(len(entry.top_logprobs) == 2 for entry in entries)


def test_a_tool_call(simulated: Stack) -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    client = simulated.client()
    ask: dict[str, Any] = {"model": "simulated", "messages": HELLO, "tools": WEATHER}
    answer = client.chat.completions.create(**ask, extra_body=script(call))
    message = answer.choices[0].message
    assert message.content is None
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls is not None
    assert [(made.type, made.function.name, made.function.arguments) for made in message.tool_calls] == [
        ("function", "get_weather", '{"city": "Paris"}')
    ]
    with client.chat.completions.stream(**ask, extra_body=script(*call)) as stream:
        final = stream.get_final_completion()
    made = (final.choices[0].message.tool_calls or [])[0]
    assert (made.function.name, made.function.arguments) == ("get_weather", '{"city": "Paris"}')
    assert final.choices[0].finish_reason == "tool_calls"


def test_a_tool_result_is_accepted(simulated: Stack) -> None:
    made: Any = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'}}
    answer = simulated.client().chat.completions.create(
        model="simulated",
        messages=[
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        tools=WEATHER,
        extra_body=script("It is sunny."),
    )
    assert answer.choices[0].message.content == "It is sunny."
    assert answer.choices[0].finish_reason == "stop"


def test_reasoning_has_both_fields(simulated: Stack) -> None:
    answer = simulated.client().chat.completions.create(
        model="simulated", messages=HELLO, extra_body=script("<think>", "hm", "</think>", "Yes.")
    )
    message = answer.choices[0].message
    assert message.content == "Yes."
    assert message.reasoning_content == message.reasoning == "hm"  # type: ignore[attr-defined]


def test_models(simulated: Stack) -> None:
    client = simulated.client()
    assert [model.id for model in client.models.list()] == ["simulated"]
    assert client.models.retrieve("simulated").id == "simulated"
    with pytest.raises(NotFoundError) as caught:
        client.models.retrieve("no/such")
    assert caught.value.code == "model_not_found"
    with pytest.raises(NotFoundError) as caught:
        client.chat.completions.create(model="no/such", messages=HELLO)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_errors_have_the_request_id(simulated: Stack) -> None:
    with pytest.raises(BadRequestError) as caught:
        simulated.client().chat.completions.create(
            model="simulated", messages=HELLO, temperature=3, extra_headers={"x-request-id": "mine-1"}
        )
    assert (caught.value.param, caught.value.request_id) == ("temperature", "mine-1")


def test_a_script_needs_the_simulated_model(real: Stack) -> None:
    with pytest.raises(BadRequestError) as caught:
        real.client().chat.completions.create(
            model="smollm2-135m-instruct", messages=HELLO, extra_body=script("nothing real")
        )
    assert caught.value.param == "simulate"


def test_tools_need_a_template_that_shows_them(real: Stack) -> None:
    with pytest.raises(BadRequestError) as caught:
        real.client().chat.completions.create(model="smollm2-135m-instruct", messages=HELLO, tools=WEATHER)
    assert caught.value.param == "tools"


def test_without_limit_and_script_the_answer_is_short(simulated: Stack) -> None:
    answer = simulated.client().chat.completions.create(model="simulated", messages=HELLO)
    assert answer.choices[0].finish_reason == "stop"
    limited = simulated.client().chat.completions.create(model="simulated", messages=HELLO, max_tokens=7)
    assert limited.choices[0].finish_reason == "length"
    assert limited.usage is not None
    assert limited.usage.completion_tokens == 7
