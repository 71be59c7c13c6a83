"""Structured output and forced tool calls through the whole stack, with the official client and real weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from openai import BadRequestError, pydantic_function_tool
from pydantic import BaseModel, Field

from modelfiles.simulated import CHAT_TEMPLATE
from tests.e2e.test_openai_client import collect
from tests.schemas import SCHEMAS
from tests.stack import Stack, running_stack

MODEL = "smollm2-135m-instruct"
ASK: list[Any] = [{"role": "user", "content": "Describe a day in the life of a cat. Answer in JSON."}]
AT_ONCE = 8
SECONDS = 300
"""Client timeout, long enough for a busy machine."""


def create(stack: Stack, **fields: Any) -> Any:
    model = fields.pop("model", MODEL)
    return stack.client().with_options(timeout=SECONDS).chat.completions.create(model=model, **fields)


def of_schema(schema: Any, **more: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema} | more}


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """SmolLM2 with a chat template that has tools, in the Hermes format, and reasoning."""
    template = tmp_path_factory.mktemp("templates") / "tools.jinja"
    template.write_text(CHAT_TEMPLATE)
    with running_stack(TOKENIZER_CHAT_TEMPLATE=str(template), ENGINE_KV_CACHE_MEMORY_MB="128") as stack:
        yield stack


SAMPLING: dict[str, Any] = {"recursion": {"temperature": 2.0, "seed": 48}}
"""With the sampling of the other schemas, the model would nest this one without end."""


def answer_of(stack: Stack, number: int, name: str) -> tuple[str, str | None]:
    """Content and finish reason; every second request streams."""
    ask = {"messages": ASK, "response_format": of_schema(SCHEMAS[name]), "max_tokens": 150}
    ask |= SAMPLING.get(name, {"temperature": 0.7, "seed": number})
    if number % 2:
        with create(stack, **ask, stream=True) as stream:
            seen = collect(stream)[0]
        return seen["content"], seen["finish"]
    choice = create(stack, **ask).choices[0]
    return choice.message.content, choice.finish_reason


def test_fifty_schemas_give_valid_json(real: Stack) -> None:
    assert len(SCHEMAS) == 50
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda each: answer_of(real, *each), enumerate(SCHEMAS)))
    for (name, schema), (content, finish) in zip(SCHEMAS.items(), answers, strict=True):
        assert finish == "stop", (name, content)
        Draft202012Validator(schema).validate(json.loads(content))


def test_stream_and_answer_agree(real: Stack) -> None:
    ask: dict[str, Any] = {
        "messages": ASK, "seed": 3, "n": 2, "max_tokens": 40, "logprobs": True, "top_logprobs": 2,
        "response_format": of_schema(SCHEMAS["person"]),
    }  # fmt: skip
    answer = create(real, **ask)
    with create(real, **ask, stream=True) as stream:
        seen = collect(stream)
    for choice in answer.choices:
        assert seen[choice.index]["content"] == choice.message.content
        assert choice.logprobs is not None
        tokens = [bytes(entry.bytes or []) for entry in choice.logprobs.content or []]
        assert b"".join(tokens).decode() == choice.message.content
        assert seen[choice.index]["finish"] == choice.finish_reason
    assert answer.choices[0].message.content != answer.choices[1].message.content


def test_any_object(real: Stack) -> None:
    answer = create(real, messages=ASK, response_format={"type": "json_object"}, max_tokens=60, temperature=0)
    content = answer.choices[0].message.content or ""
    assert content.startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(content), dict)


def test_max_tokens_cuts_json_off(real: Stack) -> None:
    answer = create(real, messages=ASK, response_format={"type": "json_object"}, max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert (answer.choices[0].message.content or "").startswith("{")


def test_a_stop_string_ends_json_too(real: Stack) -> None:
    answer = create(real, messages=ASK, response_format=of_schema(SCHEMAS["person"]), stop="age", max_tokens=60)
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.choices[0].message.content or "").rstrip().endswith(('"', ",", "{"))


class Meal(BaseModel):
    dish: str = Field(max_length=20)
    price: int = Field(ge=1, le=99)


class Menu(BaseModel):
    cuisine: Literal["french", "thai"]
    meals: list[Meal] = Field(max_length=1)
    note: str | None = Field(max_length=20)


def test_the_client_parses_its_models(real: Stack) -> None:
    answer = real.client().chat.completions.parse(
        model=MODEL, messages=ASK, response_format=Menu, max_tokens=200, seed=1
    )
    menu = answer.choices[0].message.parsed
    assert isinstance(menu, Menu)
    assert menu.cuisine in ("french", "thai")


def test_the_client_parses_streams(real: Stack) -> None:
    with real.client().chat.completions.stream(
        model=MODEL, messages=ASK, response_format=Menu, max_tokens=200, seed=1
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Menu)
    assert "".join(deltas) == final.choices[0].message.content


WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
FLAG: dict[str, Any] = {"properties": {"on": {"type": "boolean"}}, "additionalProperties": False}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER, "strict": True}},
    {"type": "function", "function": {"name": "ping"}},
    {"type": "function", "function": {"name": "p2", "parameters": FLAG | {"required": ["on"]}}},
    {"type": "function", "function": {"name": "p3", "parameters": FLAG}},
    {"type": "function", "function": {"name": "p4", "parameters": {}}},
]
PLACE: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


def force(stack: Stack, tool_choice: Any, **more: Any) -> Any:
    fields = {"messages": PLACE, "tools": TOOLS, "tool_choice": tool_choice, "max_tokens": 100, "seed": 1}
    return create(stack, **fields | more)


def check_calls(calls: Any) -> None:
    parameters = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in TOOLS}
    for call in calls:
        arguments = json.loads(call.function.arguments)
        assert isinstance(arguments, dict)
        Draft202012Validator(parameters[call.function.name]).validate(arguments)


@pytest.mark.parametrize("seed", range(3))
def test_a_required_call(calling: Stack, seed: int) -> None:
    choice = force(calling, "required", parallel_tool_calls=False, seed=seed).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert len(choice.message.tool_calls) == 1
    check_calls(choice.message.tool_calls)


def test_required_calls_may_be_several(calling: Stack) -> None:
    for choice in force(calling, "required", n=3).choices:
        assert choice.finish_reason in {"tool_calls", "length"}
        check_calls(choice.message.tool_calls or ())


@pytest.mark.parametrize("name", ["get_weather", "ping", "p4"])
def test_a_named_function(calling: Stack, name: str) -> None:
    choice = force(calling, {"type": "function", "function": {"name": name}}).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("stop", None)
    assert [call.function.name for call in choice.message.tool_calls] == [name]
    check_calls(choice.message.tool_calls)


def test_allowed_tools(calling: Stack) -> None:
    allowed = [{"type": "function", "function": {"name": "ping"}}, {"type": "function", "function": {"name": "p4"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": allowed}}
    for seed in range(3):
        answer = force(calling, choice, parallel_tool_calls=False, seed=seed).choices[0]
        assert answer.finish_reason == "tool_calls"
        assert {call.function.name for call in answer.message.tool_calls} <= {"ping", "p4"}


def test_a_forced_call_in_a_stream(calling: Stack) -> None:
    whole = force(calling, "required", parallel_tool_calls=False).choices[0]
    names, arguments, finish = "", "", None
    for chunk in force(calling, "required", parallel_tool_calls=False, stream=True):
        finish = chunk.choices[0].finish_reason or finish
        for piece in chunk.choices[0].delta.tool_calls or ():
            names += piece.function.name or ""
            arguments += piece.function.arguments or ""
    (call,) = whole.message.tool_calls
    assert (names, arguments, finish) == (call.function.name, call.function.arguments, "tool_calls")


def test_a_forced_call_that_is_cut_off(calling: Stack) -> None:
    for tool_choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        choice = force(calling, tool_choice, max_tokens=8).choices[0]
        assert (choice.finish_reason, choice.message.tool_calls) == ("length", None)
        assert choice.message.content.startswith("<tool_call>")


def test_reasoning_is_unconstrained_before_a_forced_call(calling: Stack) -> None:
    def think(is_open: bool) -> Any:
        kwargs = {"thinking": True} if is_open else {"enable_thinking": False}
        return force(calling, "required", max_tokens=40, n=2, extra_body={"chat_template_kwargs": kwargs}).choices

    for choice in think(is_open=True):
        assert (choice.finish_reason, choice.message.content, choice.message.tool_calls) == ("length", None, None)
        assert not choice.message.reasoning_content.startswith("<tool_call>")
    for choice in think(is_open=False):
        assert not hasattr(choice.message, "reasoning_content")
        assert choice.message.tool_calls or choice.message.content.startswith("<tool_call>")


class GetWeather(BaseModel):
    """The weather in a city."""

    city: str = Field(max_length=12)
    unit: Literal["celsius", "fahrenheit"]


def test_the_client_parses_forced_calls(calling: Stack) -> None:
    answer = calling.client().chat.completions.parse(
        model=MODEL, messages=PLACE, tools=[pydantic_function_tool(GetWeather)], tool_choice="required",
        parallel_tool_calls=False, max_tokens=100, seed=1,
    )  # fmt: skip
    calls = answer.choices[0].message.tool_calls or []
    assert [type(call.function.parsed_arguments) for call in calls] == [GetWeather]


def test_strict_tools_allow_plain_text(calling: Stack) -> None:
    answer = calling.client().chat.completions.parse(
        model=MODEL, messages=PLACE, tools=[pydantic_function_tool(GetWeather)], max_tokens=30, temperature=0
    )
    choice = answer.choices[0]
    assert choice.message.content or choice.message.tool_calls
    for call in choice.message.tool_calls or ():
        assert isinstance(call.function.parsed_arguments, GetWeather)


def test_tools_beside_a_format_give_calls_or_json(calling: Stack) -> None:
    for choice in force(calling, "auto", response_format=of_schema(SCHEMAS["person"]), n=3).choices:
        if choice.message.tool_calls:
            check_calls(choice.message.tool_calls)
        else:
            Draft202012Validator(SCHEMAS["person"]).validate(json.loads(choice.message.content))


def test_open_objects_and_numbers_are_bounded(real: Stack) -> None:
    person = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}}}
    share = {"type": "number", "minimum": 0.5, "maximum": 0.75}
    ask: list[Any] = [{"role": "user", "content": "Describe a person as JSON."}]
    for schema in (person | {"required": ["name", "age"]}, {"type": "object", "properties": {"x": share}}, share):
        fields: dict[str, Any] = {"messages": ask, "temperature": 0, "max_tokens": 200}
        choice = create(real, **fields, response_format=of_schema(schema)).choices[0]
        assert choice.finish_reason == "stop", choice.message.content
        Draft202012Validator(schema | {"additionalProperties": False}).validate(json.loads(choice.message.content))


EXPLODING: dict[str, Any] = {
    "patterns": {"type": "string", "allOf": [{"pattern": f"^(a|b)*a(a|b){{{n}}}$"} for n in range(1, 31)]},
    "names": {"type": "object", "patternProperties": {f"^p{n}_": {"type": "string"} for n in range(500)}},
}


@pytest.mark.parametrize("name", EXPLODING)
def test_a_schema_that_explodes_is_a_400_and_delays_no_one(simulated: Stack, name: str) -> None:
    engine = simulated.process("engine_svc")
    before = engine.memory_info().rss
    with ThreadPoolExecutor(2) as pool:
        exploding = pool.submit(simulate, simulated, response_format=of_schema(EXPLODING[name]))
        for number in range(10):
            answer = simulate(simulated, response_format=of_schema({"type": "object", "required": [f"a{number}"]}))
            assert answer.choices[0].message.content == "fine"
        assert (error := exploding.exception(SECONDS)) is not None
    assert isinstance(error, BadRequestError)
    assert error.param == "response_format"
    assert "too complex" in error.message
    assert engine.memory_info().rss - before < 100 * 2**20


SCRIPT = {"simulate": {"steps": ["fine"]}}
BAD_SCHEMAS: dict[str, Any] = {
    "refers to itself only": {"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"},
    "two that refer to each other": {
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A",
    },
    "is its own root": {"$ref": "#"},
    "a remote reference": {"$ref": "http://example.invalid/s.json"},
    "a remote reference inside": {"type": "object", "properties": {"a": {"$ref": "https://example.invalid/s"}}},
    "a file": {"$ref": "file:///etc/passwd"},
    "a reference to nothing": {"$ref": "#/$defs/nowhere"},
    "an unsupported keyword": {"type": "object", "not": {"type": "object"}},
    "nothing matches": {"type": "integer", "minimum": 5, "maximum": 4},
}  # fmt: skip
"""Schemas with invalid references."""
NO_SCHEMAS: dict[str, Any] = {
    "a bad pattern": {"type": "string", "pattern": "["},
    "a bad pattern of keys": {"type": "object", "patternProperties": {"(": {"type": "string"}}},
    "a type that does not exist": {"type": "strnig"},
    "a type that is no word": {"type": 5},
}


def simulate(stack: Stack, **fields: Any) -> Any:
    """The simulated model answers normally."""
    return create(stack, model="simulated", messages=ASK, extra_body=SCRIPT, **fields)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BAD_SCHEMAS | NO_SCHEMAS)
def test_an_invalid_schema_is_a_400_that_names_its_field(simulated: Stack, name: str, stream: bool) -> None:
    schema = (BAD_SCHEMAS | NO_SCHEMAS)[name]
    with pytest.raises(BadRequestError) as caught:
        simulate(simulated, response_format=of_schema(schema), stream=stream)
    assert caught.value.param == "response_format"
    assert simulate(simulated).choices[0].message.content == "fine"


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_an_invalid_schema_of_a_forced_tool_is_a_400_that_names_its_field(simulated: Stack, name: str) -> None:
    bad = {"type": "function", "function": {"name": "bad", "parameters": BAD_SCHEMAS[name]}}
    for tools, place in (([TOOLS[0], bad, TOOLS[1]], 1), ([bad], 0)):
        with pytest.raises(BadRequestError) as caught:
            simulate(simulated, tools=tools, tool_choice="required")
        assert caught.value.param == f"tools[{place}].function.parameters"
    assert simulate(simulated, tools=[TOOLS[1], bad]).choices[0].message.content == "fine", "nothing is forced"


@pytest.mark.parametrize("name", NO_SCHEMAS)
@pytest.mark.parametrize("tool_choice", ["auto", "none", "required"])
def test_parameters_that_are_not_a_schema_are_a_400(simulated: Stack, name: str, tool_choice: str) -> None:
    bad = {"type": "function", "function": {"name": "bad", "parameters": NO_SCHEMAS[name]}}
    with pytest.raises(BadRequestError) as caught:
        simulate(simulated, tools=[TOOLS[0], bad], tool_choice=tool_choice)
    assert caught.value.param == "tools[1].function.parameters"


def test_tools_of_all_kinds_can_be_forced(simulated: Stack) -> None:
    parameters = [None, {}, {"type": "object"}, {"type": "object", "properties": {}}, WEATHER]
    tools = [
        {"type": "function", "function": {"name": f"p{number}", "parameters": each}}
        for number, each in enumerate(parameters)
    ]
    for tool_choice in ("required", {"type": "function", "function": {"name": "p0"}}):
        assert simulate(simulated, tools=tools, tool_choice=tool_choice).choices[0].message.content == "fine"


@pytest.mark.parametrize(
    "steps", [["plain text, no call"], ['<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>']]
)
@pytest.mark.parametrize("tool_choice", ["required", {"type": "function", "function": {"name": "ping"}}])
def test_finish_reason_tool_calls_needs_calls(simulated: Stack, steps: list[str], tool_choice: Any) -> None:
    """A script can emit output that a masked model cannot."""
    script = {"simulate": {"steps": steps}}
    choice = create(
        simulated, model="simulated", messages=ASK, tools=TOOLS, tool_choice=tool_choice, extra_body=script
    ).choices[0]
    made = bool(choice.message.tool_calls)
    assert made == ("<tool_call>" in steps[0])
    assert choice.finish_reason == ("tool_calls" if made and tool_choice == "required" else "stop")


def test_the_client_parses_strict_calls_in_a_stream(simulated: Stack) -> None:
    call = '<tool_call>\n{"name": "GetWeather", "arguments": {"city": "Paris", "unit": "celsius"}}\n</tool_call>'
    with simulated.client().chat.completions.stream(
        model="simulated", messages=ASK, tools=[pydantic_function_tool(GetWeather)],
        extra_body={"simulate": {"steps": ["Well. ", *call]}},
    ) as stream:  # fmt: skip
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    assert [(event.name, event.parsed_arguments) for event in done] == [
        ("GetWeather", GetWeather(city="Paris", unit="celsius"))
    ]
    assert (final.message.content, final.finish_reason) == ("Well. ", "tool_calls")


def test_large_bounds(simulated: Stack) -> None:
    schema = {
        "type": "object", "required": ["s", "l"], "additionalProperties": False,
        "properties": {
            "s": {"type": "string", "maxLength": 65536},
            "l": {"type": "array", "maxItems": 100000, "items": {"type": "number"}},
        },
    }  # fmt: skip
    assert simulate(simulated, response_format=of_schema(schema)).choices[0].message.content == "fine"


def test_reasoning_then_json(simulated: Stack) -> None:
    """Scripts are not masked; this checks that reasoning and JSON are separated."""
    steps = {"simulate": {"steps": ["plan", "</think>", '{"a":1}']}, "chat_template_kwargs": {"thinking": True}}
    answer = create(
        simulated, model="simulated", messages=ASK, response_format={"type": "json_object"}, extra_body=steps
    )
    message = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ('{"a":1}', "plan")
