"""Invalid requests, each with the parameter that the error must name (None: no single field)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

HI = [{"role": "user", "content": "hi"}]
PING = {"type": "function", "function": {"name": "ping"}}


@dataclass(frozen=True, slots=True)
class Hostile:
    """An invalid request: fields that replace those of a valid one, or a raw body."""

    name: str
    param: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    status: tuple[int, ...] = (400,)

    def body(self, model: str) -> bytes:
        if self.raw is not None:
            return self.raw
        return json.dumps({"model": model, "messages": HI, "max_tokens": 4} | self.fields).encode()


def bad(param: str, **fields: Any) -> Hostile:
    ((name, value),) = fields.items()
    return Hostile(f"{name}={json.dumps(value)[:60]}", param, {name: value})


def literal(name: str, value: bytes) -> Hostile:
    """A request with a field value that JSON writers do not produce."""
    start = b'{"model":"MODEL","messages":[{"role":"user","content":"hi"}],"'
    return Hostile(f"{name}={value.decode()}", name, raw=start + name.encode() + b'":' + value + b"}")


def message(param: str, *messages: Any) -> Hostile:
    return Hostile(f"messages={json.dumps(messages)[:90]}", param, {"messages": list(messages)})


def call(arguments: Any) -> dict[str, Any]:
    made = {"id": "c1", "type": "function", "function": {"name": "ping", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


def parameters(schema: Any) -> Hostile:
    tool = {"type": "function", "function": {"name": "a", "parameters": schema}}
    name = f"parameters={json.dumps(schema)[:60]}"
    return Hostile(name, "tools[1].function.parameters", {"tools": [PING, tool]})


WRONG_VALUES = [
    bad("temperature", temperature=-0.1),
    bad("temperature", temperature=2.1),
    bad("temperature", temperature="1"),
    bad("temperature", temperature=[1]),
    bad("temperature", temperature=True),
    bad("temperature", temperature=10**400),
    bad("top_p", top_p=-1),
    bad("top_p", top_p=1.01),
    bad("top_p", top_p="0.5"),
    bad("top_k", top_k=-2),
    bad("top_k", top_k=1.5),
    bad("top_k", top_k=10**30),
    bad("top_k", top_k="40"),
    bad("min_p", min_p=-0.1),
    bad("min_p", min_p=1.1),
    bad("presence_penalty", presence_penalty=-2.1),
    bad("presence_penalty", presence_penalty=2.1),
    bad("frequency_penalty", frequency_penalty=9),
    bad("frequency_penalty", frequency_penalty="x"),
    bad("repetition_penalty", repetition_penalty=0),
    bad("repetition_penalty", repetition_penalty=-1),
    bad("n", n=0),
    bad("n", n=-1),
    bad("n", n=10**9),
    bad("n", n=1.5),
    bad("n", n="2"),
    bad("seed", seed=1.5),
    bad("seed", seed="7"),
    bad("seed", seed=2**70),
    bad("stop", stop=[""]),
    bad("stop", stop=""),
    bad("stop", stop=["a"] * 5),
    bad("stop", stop=[1]),
    bad("stop", stop={"a": 1}),
    bad("stop", stop="x" * 100_000),
    bad("stop_token_ids", stop_token_ids=[-1]),
    bad("stop_token_ids", stop_token_ids=["a"]),
    bad("stop_token_ids", stop_token_ids=[99_999_999]),
    bad("logit_bias", logit_bias={"99999999": 5}),
    bad("logit_bias", logit_bias={"5": 101}),
    bad("logit_bias", logit_bias={"x": 1}),
    bad("logit_bias", logit_bias={"-1": 1}),
    bad("logit_bias", logit_bias=[1]),
    bad("logit_bias", logit_bias={"5": "1"}),
    bad("max_tokens", max_tokens=0),
    bad("max_tokens", max_tokens=-1),
    bad("max_tokens", max_tokens=1.5),
    bad("max_tokens", max_tokens="16"),
    bad("max_tokens", max_tokens=10**9),
    bad("max_tokens", max_tokens=2**64),
    bad("min_tokens", min_tokens=-1),
    bad("min_tokens", min_tokens=100),
    bad("logprobs", logprobs=1),
    bad("top_logprobs", top_logprobs=2),
    bad("stream", stream="yes"),
    bad("stream", stream=1),
    bad("stream_options", stream_options={"include_usage": True}),
    bad("ignore_eos", ignore_eos="no"),
    bad("model", model=None),
    bad("model", model=7),
    bad("model", model=""),
    bad("metadata", metadata={"a": 1}),
    bad("metadata", metadata={"k" * 65: "v"}),
    bad("metadata", metadata={"k": "v" * 513}),
    bad("metadata", metadata={str(number): "v" for number in range(17)}),
    bad("user", user=5),
    bad("tool_choice", tool_choice="required"),
    bad("tool_choice", tool_choice="sometimes"),
    bad("tool_choice", tool_choice={"type": "function", "function": {"name": "nope"}}),
    bad("tools", tools={}),
    bad("tools", tools="ping"),
    bad("response_format", response_format={"type": "yaml"}),
    bad("response_format", response_format={"type": "json_schema"}),
    bad("response_format", response_format={"type": "json_schema", "schema": {"type": "object"}}),
    bad("chat_template", chat_template="{{ 1 }}"),
    bad("chat_template_kwargs", chat_template_kwargs={"messages": [], "tools": [], "bos_token": "x"}),
    bad("chat_template_kwargs", chat_template_kwargs=[1]),
    bad("continue_final_message", continue_final_message=True),
    bad("reasoning_effort", reasoning_effort="high"),
    bad("reasoning_effort", reasoning_effort="extreme"),
    bad("enable_thinking", enable_thinking="no"),
    bad("thinking", thinking={"type": "enabled", "budget_tokens": 1024}),
    bad("thinking_budget_tokens", thinking_budget_tokens=1024),
    bad("reasoning", reasoning={"effort": "high"}),
    bad("include_reasoning", include_reasoning=False),
    bad("max_new_tokens", max_new_tokens=5),
    bad("extra_body", extra_body={"top_k": 5}),
    bad("modalities", modalities=["audio"]),
    bad("simulate", simulate=5),
    bad("store", store=True),
]

WRONG_MESSAGES = [
    bad("messages", messages=[]),
    bad("messages", messages=None),
    bad("messages", messages="hi"),
    bad("messages", messages={"role": "user", "content": "hi"}),
    message("messages[0]", 5),
    message("messages[0]", None),
    message("messages[0].role", {"content": "hi"}),
    message("messages[0].role", {"role": "alien", "content": "hi"}),
    message("messages[0].role", {"role": 5, "content": "hi"}),
    message("messages[0].content", {"role": "user", "content": None}),
    message("messages[0].content", {"role": "user"}),
    message("messages[0].content", {"role": "user", "content": 7}),
    message("messages[0].content", {"role": "user", "content": {"text": "hi"}}),
    message("messages[0].content[0]", {"role": "user", "content": ["hi"]}),
    message("messages[0].content[0].text", {"role": "user", "content": [{"type": "text"}]}),
    message("messages[0].content[0].text", {"role": "user", "content": [{"type": "text", "text": 5}]}),
    message("messages[0].content[0].type", {"role": "user", "content": [{"text": "hi"}]}),
    message("messages[0].content[0].type", {"role": "user", "content": [{"type": "smell"}]}),
    message(
        "messages[0].content[0]",
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/x"}}]},
    ),
    message("messages[1].tool_calls[0].function.arguments", *HI, call('{"a":')),
    message("messages[1].tool_calls[0].function.arguments", *HI, call("[1,2]")),
    message("messages[1].tool_calls[0].function.arguments", *HI, call("null")),
    message("messages[1].tool_calls[0].function.arguments", *HI, call({"a": 1})),
    message("messages[1].tool_calls[0]", *HI, {"role": "assistant", "tool_calls": [5]}),
    message("messages[1].tool_calls", *HI, {"role": "assistant", "tool_calls": "ping"}),
    message("messages[1].tool_call_id", *HI, {"role": "tool", "content": "x"}),
    message("messages[1].tool_call_id", *HI, result("c1")),
    message("messages[2].tool_call_id", *HI, call("{}"), result("c2")),
    message("messages[3].tool_call_id", *HI, call("{}"), result("c1"), result("c1")),
    message("messages[3].tool_call_id", *HI, call("{}"), *HI, result("c1")),
    message("messages[1].content[0].type", *HI, {"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}),
]

WRONG_TOOLS = [
    bad("tools[0]", tools=[5]),
    bad("tools[0].type", tools=[{"type": "psychic", "function": {"name": "a"}}]),
    bad("tools[0].function", tools=[{"type": "function"}]),
    bad("tools[0].function.name", tools=[{"type": "function", "function": {}}]),
    bad("tools[0].function.name", tools=[{"type": "function", "function": {"name": "no spaces"}}]),
    bad("tools[0].function.name", tools=[{"type": "function", "function": {"name": ""}}]),
    bad("tools[0].function.parameters", tools=[{"type": "function", "function": {"name": "a", "parameters": "x"}}]),
    bad("tools[1].function.name", tools=[PING, PING]),
    parameters({"type": "strnig"}),
    parameters({"required": 1}),
    parameters({"type": "object", "properties": []}),
    parameters({"properties": {"a": {"enum": "x"}}}),
    parameters({"properties": {"a": {"$ref": 5}}}),
    parameters({"properties": {"a": {"pattern": "("}}}),
    parameters({"properties": {"a": {"minLength": -1}}}),
]

RAW = [
    Hostile("no body", None, raw=b""),
    Hostile("not JSON", None, raw=b'{"model":'),
    Hostile("an array", None, raw=b"[]"),
    Hostile("a number", None, raw=b"5"),
    Hostile("null", None, raw=b"null"),
    Hostile("not UTF-8", None, raw=b'{"model":"m","user":"\xff\xfe"}'),
    literal("temperature", b"NaN"),
    literal("top_p", b"Infinity"),
    literal("top_p", b"-Infinity"),
    literal("temperature", b"1e999"),
    Hostile(
        "a lone surrogate",
        "messages[0].content",
        raw=b'{"model":"MODEL","messages":[{"role":"user","content":"a\\ud800b"}]}',
    ),
    Hostile("a lone surrogate in user", "user", raw=b'{"model":"MODEL","messages":[],"user":"\\udfff"}'),
    Hostile("deep", None, raw=b'{"model":"MODEL","messages":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
    Hostile("deep objects", None, raw=b'{"a":' * 20_000 + b"1" + b"}" * 20_000),
    Hostile("deep and open", None, raw=b"[" * 1_000_000),
    Hostile("text", None, raw=b"{}", headers={"content-type": "text/plain"}, status=(415,)),
    Hostile("a form", None, raw=b"a=1", headers={"content-type": "application/x-www-form-urlencoded"}, status=(415,)),
    Hostile("huge", None, raw=b'{"model":"MODEL","x":"' + b"a" * (100 << 20) + b'"}', status=(413,)),
    Hostile("many bad items", None, fields={"messages": [{"role": 5, "content": 7}] * 200}),
]

ALL = [*WRONG_VALUES, *WRONG_MESSAGES, *WRONG_TOOLS, *RAW]
