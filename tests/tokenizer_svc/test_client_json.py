from __future__ import annotations

import json

import pytest

from svclib.errors import InvalidRequest
from tokenizer_svc.client_json import MAX_DEPTH, parse_object


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize("text", ["{}", '{"a": [1, 2.5, null, true, {"b": "Zürich \\ud83d\\ude00"}]}', ' {"a": 1} '])
def test_an_object(text: str) -> None:
    assert parse_object(text, "x") == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        '{"a":',
        "[1,2]",
        "null",
        "1",
        '"a"',
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        '{"\\udc00": 1}',
        '{"a": 1}{"b": 2}',
        '{"a": ' + "1" * 5000 + "}",
        "{" * 100_000,
        nested(100_000),
    ],
    ids=lambda text: text[:12],
)
def test_other_values_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_object(text, "messages[1].tool_calls[0].function.arguments")
    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"


def test_the_depth_at_the_limit_and_one_above() -> None:
    assert parse_object(nested(MAX_DEPTH), "x") == json.loads(nested(MAX_DEPTH))
    with pytest.raises(InvalidRequest, match="nested deeper than 100 levels"):
        parse_object(nested(MAX_DEPTH + 1), "x")
