from __future__ import annotations

from typing import Any

import pytest

from gateway.schemas.chat_completion import ChatCompletion
from gateway.schemas.unsupported import ASKS_FOR_NOTHING, refuse_unsupported
from svclib.errors import Unsupported


def test_no_field_is_both_supported_and_not() -> None:
    assert not set(ASKS_FOR_NOTHING) & set(ChatCompletion.model_fields)


@pytest.mark.parametrize("name", ASKS_FOR_NOTHING)
def test_asking_for_something_is_refused_by_name(name: str) -> None:
    for value in ("something", 17, {"a": 1}, ["x"]):
        with pytest.raises(Unsupported) as caught:
            refuse_unsupported({name: value})
        assert caught.value.param == name
        assert name in caught.value.message


@pytest.mark.parametrize(("name", "value"), ASKS_FOR_NOTHING.items())
def test_asking_for_nothing_is_fine(name: str, value: Any) -> None:
    refuse_unsupported({name: value})
    refuse_unsupported({name: None})


@pytest.mark.parametrize(("name", "value"), [("echo", 0), ("best_of", True), ("store", 0)])
def test_a_number_is_no_truth_value(name: str, value: Any) -> None:
    with pytest.raises(Unsupported):
        refuse_unsupported({name: value})


@pytest.mark.parametrize(
    "name",
    [
        "reasoning_effort", "functions", "audio", "prediction", "verbosity", "web_search_options", "chat_template",
        "cache_salt", "priority", "prompt_logprobs", "echo", "best_of", "thinking", "thinking_budget", "guided_json",
        "structured_outputs", "modalities", "store", "function_call",
    ],
)  # fmt: skip
def test_the_well_known_ones_are_known(name: str) -> None:
    assert name in ASKS_FOR_NOTHING
