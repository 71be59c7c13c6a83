from __future__ import annotations

from contextlib import suppress
from typing import Any

import openai
import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel

from gateway.api.schemas.json_schema import check_strict
from svclib.errors import InvalidRequest


def closed(**properties: Any) -> dict[str, Any]:
    """The schema of a strict object."""
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


OPEN = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
LACKING = closed(a={}, b={}) | {"required": ["a"]}


def fault(schema: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        check_strict(schema, param="response_format", place="schema")
    assert caught.value.param == "response_format"
    return caught.value.message


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        closed(),
        closed(a={"type": "string"}, b=closed(c={"type": ["object", "null"]} | closed())),
        closed(a={"anyOf": [closed(b={}), {"type": "null"}]}),
        closed(a={"type": "array", "items": closed()}),
        {"$defs": {"A": closed()}, "$ref": "#/$defs/A"},
        closed(properties={"type": "integer"}, required={"type": "boolean"}),
    ],
)
def test_strict_schemas(schema: Any) -> None:
    check_strict(schema, param="response_format", place="schema")


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (OPEN, "schema is strict"),
        ({"type": "object"}, "schema is strict"),
        ({"properties": {}}, "schema is strict"),
        ({"type": ["object", "null"]}, "schema is strict"),
        (OPEN | {"additionalProperties": True}, "schema is strict"),
        (OPEN | {"additionalProperties": {}}, "schema is strict"),
        (OPEN | {"additionalProperties": 0}, "schema is strict"),
        (closed(a=closed(b=OPEN)), "schema.properties.a.properties.b is strict"),
        (closed(a={"type": "array", "items": OPEN}), "schema.properties.a.items is strict"),
        (closed(a={"type": "array", "items": [closed(), OPEN]}), "schema.properties.a.items[1] is strict"),
        (closed(a={"prefixItems": [OPEN]}), "schema.properties.a.prefixItems[0] is strict"),
        (closed(a={"anyOf": [closed(), OPEN]}), "schema.properties.a.anyOf[1] is strict"),
        (closed(a={"oneOf": [OPEN]}), "schema.properties.a.oneOf[0] is strict"),
        (closed(a={"allOf": [OPEN]}), "schema.properties.a.allOf[0] is strict"),
        (closed() | {"$defs": {"A": OPEN}}, "schema.$defs.A is strict"),
        (closed() | {"definitions": {"A": OPEN}}, "schema.definitions.A is strict"),
    ],
)
def test_open_object_is_located(schema: Any, place: str) -> None:
    message = fault(schema)
    assert message.startswith(place)
    assert "additionalProperties" in message


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (LACKING, "schema is strict"),
        (closed(a={}) | {"required": None}, "schema is strict"),
        ({name: value for name, value in closed(a={}).items() if name != "required"}, "schema is strict"),
        (closed(x=LACKING), "schema.properties.x is strict"),
    ],
)
def test_optional_property_is_named(schema: Any, place: str) -> None:
    message = fault(schema)
    assert message.startswith(place)
    assert "required" in message
    assert "'a'" in message or "'b'" in message


@pytest.mark.parametrize("value", [5, "x", [1], {"a": 1}, None, True])
@pytest.mark.parametrize("keyword", ["properties", "required", "items", "anyOf", "$defs", "type"])
def test_invalid_schemas_raise_only_invalid_request(keyword: str, value: Any) -> None:
    with suppress(InvalidRequest):
        check_strict(closed() | {keyword: value}, param="p", place="schema")


class Step(BaseModel):
    explanation: str
    output: float | None


class Solution(BaseModel):
    steps: list[Step]
    answer: str


def test_schemas_of_the_official_client_are_strict() -> None:
    check_strict(to_strict_json_schema(Solution), param="p", place="schema")
    tool: Any = openai.pydantic_function_tool(Solution)
    check_strict(tool["function"]["parameters"], param="p", place="schema")
