from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.chat.read import read_chat
from gateway.generation import request as chat
from gateway.policy import limits
from svclib.errors import InvalidRequest, Unsupported

HI = [{"role": "user", "content": "hi"}]


def read(response_format: Any, **more: Any) -> chat.JsonFormat | None:
    fields = {"model": "m", "messages": HI, "response_format": response_format} | more
    return read_chat(fields, reject_unknown=False).generation.response_format


def with_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema} | more}


def fault(response_format: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(response_format)
    assert caught.value.param == "response_format"
    return caught.value


def test_text_is_not_constrained() -> None:
    assert read(None) is None
    assert read({"type": "text"}) is None
    assert read({"type": "text", "json_schema": None}) is None


def test_json_object() -> None:
    assert read({"type": "json_object"}) == chat.JsonFormat(schema_json=None)


def test_schema_is_passed_unchanged() -> None:
    schema = {"type": "object", "properties": {"ß": {"enum": [1, 2.5, None]}}}
    found = read(with_schema(schema, description="d", strict=False))
    assert found is not None
    assert json.loads(found.schema_json or "") == schema
    assert read(with_schema({})) == chat.JsonFormat("{}")


@pytest.mark.parametrize(
    ("response_format", "place"),
    [
        ("json_object", "response_format must be an object"),
        ({}, "response_format.type is missing"),
        ({"type": "yaml"}, "response_format.type must be"),
        ({"type": None}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema is missing"),
        ({"type": "json_schema", "json_schema": None}, "response_format.json_schema is missing"),
        ({"type": "json_schema", "json_schema": "x"}, "response_format.json_schema must be an object"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, "response_format.json_schema.name is missing"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "response_format.json_schema.schema is missing"),
        (with_schema(None), "response_format.json_schema.schema must be an object"),
        (with_schema(True), "response_format.json_schema.schema must be an object"),
        (with_schema([]), "response_format.json_schema.schema must be an object"),
        (with_schema({}, name="two words"), "response_format.json_schema.name must match"),
        (with_schema({}, name="x" * 65), "response_format.json_schema.name must match"),
        (with_schema({}, name=""), "response_format.json_schema.name must match"),
        (with_schema({}, strict="yes"), "response_format.json_schema.strict must be true or false"),
        (with_schema({}, description=5), "response_format.json_schema.description must be a string"),
        (with_schema({"a": "x" * limits.MAX_SCHEMA_BYTES}), "must be at most"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_error_message_has_the_path(response_format: Any, place: str) -> None:
    error = fault(response_format)
    assert place in error.message
    assert not isinstance(error, Unsupported)


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "json_schema", "strict": True, "schema": {"type": "object"}},
        {"type": "json_schema", "name": "x", "schema": {"type": "object"}},
        {"type": "json_object", "schema": {"type": "object"}},
        {"type": "text", "json_schema": {"name": "x", "schema": {}}},
        {"type": "json_object", "json_schema": {"name": "x", "schema": {}}},
    ],
)
def test_misplaced_schema_is_an_error(response_format: Any) -> None:
    assert "response_format.json_schema" in fault(response_format).message


def test_structural_tag_is_unsupported() -> None:
    assert isinstance(fault({"type": "structural_tag", "structures": []}), Unsupported)


def test_schemas_are_bounded_in_depth() -> None:
    deep: dict[str, Any] = {}
    for _ in range(limits.MAX_JSON_DEPTH - 1):
        deep = {"not": deep}
    assert read(with_schema(deep))
    assert "deep" in fault(with_schema({"a": {"a": deep}})).message


def test_unknown_members_are_named() -> None:
    given = {"type": "json_schema", "mood": 1, "json_schema": {"name": "x", "schema": {"own": 1}, "colour": 1}}
    request = read_chat({"model": "m", "messages": HI, "response_format": given}, reject_unknown=False)
    assert request.ignored == ("response_format.mood", "response_format.json_schema.colour")


@pytest.mark.parametrize("strict", [False, None])
def test_strict_rules_apply_only_to_strict_schemas(strict: bool | None) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert read(with_schema(schema, strict=strict))
    assert "additionalProperties" in fault(with_schema(schema, strict=True)).message


def test_response_format_with_continue_final_message() -> None:
    begun = [*HI, {"role": "assistant", "content": '{"a": '}]
    fields = {"model": "m", "messages": begun, "continue_final_message": True}
    read_chat(fields, reject_unknown=True)
    with pytest.raises(InvalidRequest) as caught:
        read_chat(fields | {"response_format": {"type": "json_object"}}, reject_unknown=True)
    assert caught.value.param == "continue_final_message"
