from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.chat.read import read_chat
from gateway.api.chat.request import ChatRequest
from gateway.api.chat.schema import ChatCompletion
from gateway.api.chat.stream import StreamOptions
from gateway.api.chat.unsupported import UNSUPPORTED
from gateway.generation import request as chat
from gateway.policy import limits
from svclib.errors import InvalidRequest
from tests.gateway.api.chat.reading import conversation

HI = [{"role": "user", "content": "hi"}]


def read(**fields: Any) -> ChatRequest:
    return read_chat({"model": "m", "messages": HI} | fields, reject_unknown=False)


def fault(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(**fields)
    assert len(caught.value.message) < 500
    return caught.value


@pytest.mark.parametrize("name", ["model", "messages"])
def test_required_fields(name: str) -> None:
    document = {"model": "m", "messages": HI}
    del document[name]
    with pytest.raises(InvalidRequest) as caught:
        read_chat(document, reject_unknown=False)
    assert caught.value.param == name
    assert fault(**{name: None}).param == name


def test_minimal_request() -> None:
    names = chat.FieldNames(prompt="messages", logprobs="top_logprobs")
    prompt = chat.Conversation((chat.Message("user", "hi"),))
    assert read() == ChatRequest(chat.GenerationRequest("m", prompt, chat.Sampling(), names=names), ignored=())


OPTIONAL = sorted(set(ChatCompletion.model_fields) - {"model", "messages"})


@pytest.mark.parametrize("name", [*OPTIONAL, *UNSUPPORTED, "anything_else"])
def test_null_is_absent(name: str) -> None:
    assert read(**{name: None}) == read()


# Field, valid values up to the limits, and invalid ones just beyond.
RANGES: list[tuple[str, list[Any], list[Any]]] = [
    ("temperature", [0, 0.0, 1, 2, 2.0, 1e-300], [-0.001, 2.001, -1]),
    ("top_p", [0, 1, 0.5], [-0.001, 1.001]),
    ("top_k", [-1, 0, 1, 2**31 - 1], [-2, 2**31]),
    ("min_p", [0, 1], [-0.001, 1.001]),
    ("presence_penalty", [-2, 0, 2], [-2.001, 2.001]),
    ("frequency_penalty", [-2, 0, 2], [-2.001, 2.001]),
    ("repetition_penalty", [0.01, 1, limits.MAX_REPETITION_PENALTY], [0, -1, limits.MAX_REPETITION_PENALTY + 0.1]),
    ("seed", [-(2**63), 0, 2**63 - 1], [-(2**63) - 1, 2**63]),
    ("max_tokens", [1, limits.MAX_TOKENS], [0, -1, limits.MAX_TOKENS + 1]),
    ("max_completion_tokens", [1], [0, -1]),
    ("min_tokens", [0, 5], [-1]),
    ("n", [1, limits.MAX_CHOICES], [0, -1, limits.MAX_CHOICES + 1, 10**9]),
]


@pytest.mark.parametrize(("name", "good", "bad"), RANGES, ids=[row[0] for row in RANGES])
def test_ranges_at_the_limit_and_one_beyond(name: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        read(**{name: value})
    for value in bad:
        assert fault(**{name: value}).param == name


@pytest.mark.parametrize("name", [row[0] for row in RANGES])
@pytest.mark.parametrize("value", ["1", True, [1], {"a": 1}, float("nan"), float("inf"), ""], ids=str)
def test_numbers_are_numbers(name: str, value: Any) -> None:
    assert fault(**{name: value}).param == name


@pytest.mark.parametrize("name", ["top_k", "seed", "max_tokens", "max_completion_tokens", "min_tokens", "n"])
@pytest.mark.parametrize("value", [1.5, 1.0, 1e30])
def test_integers_have_no_fraction(name: str, value: float) -> None:
    assert fault(**{name: value}).param == name


@pytest.mark.parametrize("name", ["stream", "logprobs", "ignore_eos", "skip_special_tokens", "continue_final_message"])
@pytest.mark.parametrize("value", [1, 0, "true", "", [], {}], ids=repr)
def test_booleans_are_booleans(name: str, value: Any) -> None:
    assert fault(**{name: value}).param == name


def test_zero_is_not_absent() -> None:
    request = read(temperature=0, top_p=0, top_k=0, min_p=0, presence_penalty=0, min_tokens=0, seed=0)
    sampling = request.generation.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 0, 0, 0)
    assert (sampling.presence_penalty, sampling.min_tokens, sampling.seed) == (0, 0, 0)
    assert sampling.frequency_penalty is None


@pytest.mark.parametrize(
    ("given", "read_as"),
    [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), (["x" * limits.MAX_STOP_CHARS] * 4, ("x" * 1024,) * 4)],
    ids=["one", "two", "none", "longest"],
)
def test_stop(given: Any, read_as: tuple[str, ...]) -> None:
    assert read(stop=given).generation.stop == read_as


@pytest.mark.parametrize("value", ["", [""], ["a", ""], ["a"] * 5, [1], 5, {"a": 1}, "x" * (limits.MAX_STOP_CHARS + 1)])
def test_bad_stop(value: Any) -> None:
    assert fault(stop=value).param == "stop"


def test_logit_bias() -> None:
    assert read(logit_bias={"0": -100, "99": 0.5}).generation.sampling.logit_bias == {0: -100.0, 99: 0.5}
    assert read(logit_bias={}).generation.sampling.logit_bias == {}
    read(logit_bias={str(token): 1 for token in range(limits.MAX_BIASES)})
    assert fault(logit_bias={str(token): 1 for token in range(limits.MAX_BIASES + 1)}).param == "logit_bias"


@pytest.mark.parametrize("key", ["", "a", "-1", "+1", " 1", "1 ", "01", "1.0", "1e3", "٣", "1\n", "9" * 30])
def test_bias_keys_are_token_ids(key: str) -> None:
    assert fault(logit_bias={key: 1}).param == "logit_bias"


@pytest.mark.parametrize("bias", [100.1, -101, "1", None, True, [1], float("nan")])
def test_bias_values_are_limited(bias: Any) -> None:
    assert fault(logit_bias={"5": bias}).param == "logit_bias"


@pytest.mark.parametrize("value", [[-1], ["a"], [1.5], [True], {}, 5, "5", [0] * (limits.MAX_STOP_TOKENS + 1)])
def test_bad_stop_token_ids(value: Any) -> None:
    assert fault(stop_token_ids=value).param == "stop_token_ids"


def test_logprobs() -> None:
    assert read().generation.sampling.logprobs is None
    assert read(logprobs=False).generation.sampling.logprobs is None
    assert read(logprobs=True).generation.sampling.logprobs == 0
    assert read(logprobs=True, top_logprobs=20).generation.sampling.logprobs == 20
    assert read(top_logprobs=0).generation.sampling.logprobs is None
    assert fault(top_logprobs=2).param == "top_logprobs"
    assert fault(top_logprobs=2, logprobs=False).param == "top_logprobs"
    assert fault(logprobs=True, top_logprobs=21).param == "top_logprobs"
    assert fault(logprobs=True, top_logprobs=-1).param == "top_logprobs"


def test_max_tokens_has_an_alias() -> None:
    assert read(max_tokens=5).generation.sampling.max_tokens == 5
    assert read(max_completion_tokens=5).generation.sampling.max_tokens == 5
    assert read(max_tokens=5, max_completion_tokens=5).generation.sampling.max_tokens == 5
    assert fault(max_tokens=5, max_completion_tokens=6).param == "max_completion_tokens"
    assert read(max_tokens=5).generation.names.max_tokens == "max_tokens"
    assert read(max_completion_tokens=5).generation.names.max_tokens == "max_completion_tokens"
    assert fault(max_tokens=5, min_tokens=6).param == "min_tokens"
    assert read(max_tokens=5, min_tokens=5).generation.sampling.min_tokens == 5


def test_stream_options() -> None:
    assert read().stream is None
    assert read(stream=False).stream is None
    assert read(stream=True).stream == StreamOptions()
    assert read(stream=True, stream_options={}).stream == StreamOptions()
    asked = {"include_usage": True, "continuous_usage_stats": True}
    assert read(stream=True, stream_options=asked).stream == StreamOptions(True, True)
    for wrong in (False, None):
        assert fault(stream=wrong, stream_options={"include_usage": True}).param == "stream_options"
    assert fault(stream=True, stream_options={"include_usage": 1}).param == "stream_options.include_usage"
    assert fault(stream=True, stream_options=[]).param == "stream_options"
    obfuscated = fault(stream=True, stream_options={"include_obfuscation": True})
    assert obfuscated.param == "stream_options.include_obfuscation"


def test_continuing_the_last_message() -> None:
    turns = [*HI, {"role": "assistant", "content": "Yes, "}]
    assert conversation(read(messages=turns, continue_final_message=True)).continue_final_message is True
    assert conversation(read(messages=HI, continue_final_message=False)).continue_final_message is False
    assert fault(continue_final_message=True).param == "continue_final_message"
    both = fault(messages=turns, continue_final_message=True, add_generation_prompt=True)
    assert both.param == "add_generation_prompt"


def test_template_variables_are_passed_as_json() -> None:
    assert (
        conversation(read(chat_template_kwargs={"a": [1, "ü"], "b": None})).template_kwargs_json
        == '{"a":[1,"ü"],"b":null}'
    )
    assert conversation(read(chat_template_kwargs={})).template_kwargs_json == ""
    wrong: Any
    for wrong in ([], "x", 5):
        assert fault(chat_template_kwargs=wrong).param == "chat_template_kwargs"
    room = limits.MAX_TEMPLATE_KWARGS_BYTES - len('{"a":""}')
    assert read(chat_template_kwargs={"a": "x" * room})
    assert fault(chat_template_kwargs={"a": "x" * (room + 1)}).param == "chat_template_kwargs"


def test_fields_without_effect_are_accepted() -> None:
    harmless = {
        "user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "prompt_cache_retention": "24h",
        "service_tier": "auto", "store": False, "metadata": {"a": "b"}, "response_format": {"type": "text"},
        "parallel_tool_calls": True, "modalities": ["text"],
    }  # fmt: skip
    assert read(**harmless) == read()


@pytest.mark.parametrize("name", ["user", "safety_identifier", "prompt_cache_key", "service_tier"])
def test_labels_are_short_strings(name: str) -> None:
    read(**{name: "x" * limits.MAX_LABEL_CHARS})
    for wrong in ("x" * (limits.MAX_LABEL_CHARS + 1), 5, ["x"]):
        assert fault(**{name: wrong}).param == name


def test_metadata() -> None:
    read(metadata={str(number): "v" for number in range(16)})
    read(metadata={"k" * 64: "v" * 512})
    wrong: Any
    for wrong in (
        {str(number): "v" for number in range(17)}, {"k" * 65: "v"}, {"k": "v" * 513}, {"k": 1}, {"k": None}, [], "x",
    ):  # fmt: skip
        assert fault(metadata=wrong).param == "metadata"


def test_unknown_fields_are_named() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "x", "tone": {}}], "mood": "good"}
    tool = {"type": "function", "colour": 1, "function": {"name": "f", "speed": 1}}
    call = {"id": "1", "type": "function", "weight": 0, "function": {"name": "f", "arguments": "{}", "x": 1}}
    request = read(
        frobnicate=1, nothing=None, messages=[message, {"role": "assistant", "tool_calls": [call]}], tools=[tool],
        stream=True, stream_options={"speed": 1},
    )  # fmt: skip
    assert request.ignored == (
        "frobnicate", "messages[0].mood", "messages[0].content[0].tone", "messages[1].tool_calls[0].weight",
        "messages[1].tool_calls[0].function.x", "tools[0].colour", "tools[0].function.speed", "stream_options.speed",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["model_config", "model_fields", "__class__", "__dict__", "copy", "self", "", "a.b"])
def test_unknown_fields_may_have_any_name(name: str) -> None:
    assert read(**{name: 1}).ignored == (name,)


def test_unknown_fields_can_be_rejected() -> None:
    document = {"model": "m", "messages": HI, "frobnicate": 1}
    with pytest.raises(InvalidRequest) as caught:
        read_chat(document, reject_unknown=True)
    assert caught.value.param == "frobnicate"
    read_chat(document | {"frobnicate": None}, reject_unknown=True)


def test_messages_are_bounded() -> None:
    assert len(conversation(read(messages=HI * limits.MAX_MESSAGES)).messages) == limits.MAX_MESSAGES
    assert fault(messages=HI * (limits.MAX_MESSAGES + 1)).param == "messages"


def test_many_faults_give_one_short_error() -> None:
    error = fault(messages=[{"role": 5, "content": 7}] * 4000, temperature="x", n="y")
    assert error.param == "messages[0].role"


def test_inputs_are_not_repeated_in_errors() -> None:
    for name, value in (("temperature", "s3cret"), ("messages", [{"role": "s3cret"}]), ("stop", ["s3cret" * 999])):
        assert "s3cret" not in json.dumps([fault(**{name: value}).message, fault(**{name: value}).param])
