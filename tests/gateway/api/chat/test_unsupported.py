from __future__ import annotations

from typing import Any

import pytest

from gateway.api.chat.read import read_chat
from gateway.api.chat.schema import ChatCompletion
from gateway.api.chat.thinking import is_thinking_field
from gateway.api.chat.unsupported import NO_EFFECT_ON_OUTPUT, UNSUPPORTED, is_known, refuse_unsupported
from svclib.errors import Unsupported


def test_lists_of_fields_do_not_overlap() -> None:
    assert not set(UNSUPPORTED) & set(ChatCompletion.model_fields)
    assert not NO_EFFECT_ON_OUTPUT & (set(UNSUPPORTED) | set(ChatCompletion.model_fields))
    every = (*UNSUPPORTED, *NO_EFFECT_ON_OUTPUT, *ChatCompletion.model_fields)
    assert not any(map(is_thinking_field, every))


@pytest.mark.parametrize("name", sorted(NO_EFFECT_ON_OUTPUT))
def test_fields_without_effect_are_accepted(name: str) -> None:
    document = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    for value in ("x", 5, [1], {"a": 1}, False):
        assert read_chat(document | {name: value}, reject_unknown=True) == read_chat(document, reject_unknown=True)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_values_name_the_field(name: str) -> None:
    for value in ("something", 17, {"a": 1}, ["x"]):
        with pytest.raises(Unsupported) as caught:
            refuse_unsupported({name: value})
        assert caught.value.param == name
        assert name in caught.value.message


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED.items())
def test_values_without_effect_are_accepted(name: str, value: Any) -> None:
    refuse_unsupported({name: value})
    refuse_unsupported({name: None})


@pytest.mark.parametrize(("name", "value"), [("echo", 0), ("best_of", True), ("store", 0), ("mirostat", False)])
def test_booleans_do_not_equal_numbers(name: str, value: Any) -> None:
    with pytest.raises(Unsupported):
        refuse_unsupported({name: value})


@pytest.mark.parametrize(
    "name",
    [
        "reasoning_effort", "functions", "audio", "prediction", "verbosity", "web_search_options", "chat_template",
        "cache_salt", "priority", "prompt_logprobs", "echo", "best_of", "thinking", "thinking_budget", "guided_json",
        "structured_outputs", "modalities", "store", "function_call", "thinking_budget_tokens", "thinking_token_budget",
        "reasoning_budget", "enable_thinking", "think", "reasoning_format", "include_reasoning", "separate_reasoning",
        "stop_regex", "logprob_token_ids", "truncation_side", "n_predict", "dry_multiplier", "xtc_probability",
        "top_n_sigma", "repeat_penalty", "mirostat_tau", "cache_prompt", "id_slot", "max_new_tokens", "top_n_tokens",
        "options", "keep_alive", "format", "safe_prompt", "random_seed", "transforms", "provider", "enable_search",
        "context_length_exceeded_behavior", "instructions", "max_output_tokens", "extra_body",
    ],
)  # fmt: skip
def test_well_known_fields_are_listed(name: str) -> None:
    assert is_known(name) or is_thinking_field(name)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"max_new_tokens": 5}, "use max_tokens"),
        ({"repeat_penalty": 1.1}, "use repetition_penalty"),
        ({"guided_json": {}}, "use response_format"),
        ({"extra_body": {"top_k": 5}}, "at the top level"),
        ({"echo": True}, "with a value other than false"),
    ],
)
def test_errors_name_the_supported_field(field: dict[str, Any], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        refuse_unsupported(field)
