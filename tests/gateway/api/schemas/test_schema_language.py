from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field

from gateway.api.chat.read import read_chat
from gateway.api.schemas.schema_language import check_schema
from svclib.errors import InvalidRequest

HI = [{"role": "user", "content": "hi"}]


def fault(schema: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        check_schema(schema, param="p", place="schema")
    assert caught.value.param == "p"
    return caught.value.message


FAULTS: list[tuple[str, Any]] = [
    ("schema.type", {"type": "strnig"}),
    ("schema.type", {"type": "any"}),
    ("schema.type", {"type": "STRING"}),
    ("schema.type", {"type": None}),
    ("schema.type", {"type": 5}),
    ("schema.type", {"type": []}),
    ("schema.type", {"type": ["string", "nul"]}),
    ("schema.type", {"type": {"a": 1}}),
    ("schema.required", {"required": 1}),
    ("schema.required", {"required": True}),
    ("schema.required", {"required": None}),
    ("schema.required", {"required": "a"}),
    ("schema.required", {"required": [1]}),
    ("schema.properties", {"properties": []}),
    ("schema.properties", {"properties": None}),
    ("schema.properties", {"properties": "a"}),
    ("schema.properties.a", {"properties": {"a": []}}),
    ("schema.properties.a", {"properties": {"a": None}}),
    ("schema.properties.a", {"properties": {"a": "string"}}),
    ("schema.properties.a.type", {"properties": {"a": {"type": "str"}}}),
    ("schema.patternProperties", {"patternProperties": {"(": {}}}),
    ("schema.patternProperties", {"patternProperties": []}),
    ("schema.additionalProperties", {"additionalProperties": "no"}),
    ("schema.additionalProperties.type", {"additionalProperties": {"type": "x"}}),
    ("schema.enum", {"enum": "a"}),
    ("schema.enum", {"enum": {"a": 1}}),
    ("schema.$ref", {"$ref": 5}),
    ("schema.$ref", {"$ref": {"a": 1}}),
    ("schema.$defs", {"$defs": []}),
    ("schema.$defs.A", {"$defs": {"A": 1}}),
    ("schema.definitions.A.type", {"definitions": {"A": {"type": "x"}}}),
    ("schema.pattern", {"pattern": "("}),
    ("schema.pattern", {"pattern": 5}),
    ("schema.format", {"format": 5}),
    ("schema.minLength", {"minLength": -1}),
    ("schema.minLength", {"minLength": "1"}),
    ("schema.minLength", {"minLength": 1.5}),
    ("schema.maxItems", {"maxItems": True}),
    ("schema.minimum", {"minimum": "0"}),
    ("schema.maximum", {"maximum": True}),
    ("schema.exclusiveMinimum", {"exclusiveMinimum": "0"}),
    ("schema.multipleOf", {"multipleOf": 0}),
    ("schema.uniqueItems", {"uniqueItems": 1}),
    ("schema.items", {"items": "string"}),
    ("schema.items", {"items": None}),
    ("schema.items.type", {"items": {"type": "x"}}),
    ("schema.items[1].type", {"items": [{}, {"type": "x"}]}),
    ("schema.items[0]", {"items": [5]}),
    ("schema.prefixItems[0]", {"prefixItems": [[]]}),
    ("schema.anyOf", {"anyOf": {}}),
    ("schema.anyOf", {"anyOf": []}),
    ("schema.anyOf[1]", {"anyOf": [{}, "x"]}),
    ("schema.oneOf", {"oneOf": 1}),
    ("schema.allOf[0].not.type", {"allOf": [{"not": {"type": "x"}}]}),
    ("schema.not", {"not": [{}]}),
    ("schema.if", {"if": "x"}),
    ("schema.dependencies", {"dependencies": {"a": [1]}}),
    ("schema.dependencies.a", {"dependencies": {"a": 1}}),
    ("schema.dependentRequired", {"dependentRequired": {"a": "b"}}),
    ("schema.dependentSchemas.a", {"dependentSchemas": {"a": []}}),
    ("schema.description", {"description": 5}),
    ("schema.title", {"title": ["x"]}),
]


@pytest.mark.parametrize(("place", "schema"), FAULTS, ids=lambda value: str(value)[:60])
def test_errors_name_the_field(place: str, schema: Any) -> None:
    assert fault(schema).startswith(f"{place} ")


@pytest.mark.parametrize(("place", "schema"), FAULTS, ids=lambda value: str(value)[:60])
def test_errors_in_nested_schemas_name_the_path(place: str, schema: Any) -> None:
    deep = {"type": "object", "properties": {"x": {"items": {"anyOf": [{"type": "null"}, schema]}}}}
    assert fault(deep).startswith(place.replace("schema", "schema.properties.x.items.anyOf[1]", 1) + " ")


DEVIANT: list[Any] = [
    {},
    {"type": ["string", "null"]},
    {"properties": {"a": True, "b": False}, "additionalProperties": {}},
    {"minimum": 0, "exclusiveMinimum": True},
    {"exclusiveMaximum": 5.5},
    {"items": [{"type": "string"}, True], "additionalItems": False},
    {"items": False, "prefixItems": [{}]},
    {"required": []},
    {"enum": []},
    {"enum": [None, 1, {"type": "x"}, ["("]]},
    {"const": {"type": "x"}, "default": {"properties": []}, "examples": {"required": 1}, "example": None},
    {"dependencies": {"a": ["b"], "c": {"type": "object"}, "d": True}},
    {"dependentRequired": {"a": []}},
    {"definitions": {"A": {}}, "$defs": {}, "$ref": "#/definitions/A"},
    {"id": "x", "$id": "y", "$schema": "http://json-schema.org/draft-07/schema#", "$comment": ""},
    {"minLength": 2.0, "maxLength": 10**30},
    {"description": None, "title": None, "nullable": True, "x-order": 5, "propertyOrdering": ["a"], "discriminator": 1},
    {"properties": {"type": {"type": "string"}, "required": {"type": "boolean"}, "properties": {"enum": [1]}}},
    {"properties": {"$ref": {"type": "string"}}},
    {"pattern": "^\\p{L}+\\/$", "format": "no-such-format"},
    {"contentMediaType": "x", "readOnly": "yes", "deprecated": "use b"},
]


@pytest.mark.parametrize("schema", DEVIANT, ids=lambda value: str(value)[:60])
def test_forms_of_some_draft_or_generator_are_valid(schema: Any) -> None:
    check_schema(schema, param="p", place="schema")
    check_schema({"properties": {"x": schema}}, param="p", place="schema")


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


class Place(BaseModel):
    city: Annotated[str, Field(pattern=r"^\w+$", min_length=1, max_length=80, examples=["Bern"])]
    unit: Unit = Unit.CELSIUS
    days: Annotated[int, Field(ge=1, lt=15)] | None = None
    grid: tuple[float, float] | None = None
    tags: dict[str, list[Literal["a", 1]]] = {}
    within: list[Place] = []


ZOD = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "n": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
        "pair": {"type": "array", "minItems": 2, "maxItems": 2, "items": [{"type": "string"}, {"type": "number"}]},
        "rest": {"type": "object", "additionalProperties": {}, "propertyNames": {"pattern": "^[a-z]+$"}},
        "again": {"$ref": "#/properties/pair"},
        "kind": {"anyOf": [{"type": "string", "const": "a"}, {"not": {}}]},
    },
    "required": ["id"],
    "additionalProperties": False,
    "$schema": "http://json-schema.org/draft-07/schema#",
}


@pytest.mark.parametrize(
    "schema",
    [Place.model_json_schema(), to_strict_json_schema(Place), ZOD, {"type": "object", "properties": {}}],
)
def test_schemas_of_known_generators_are_valid(schema: dict[str, Any]) -> None:
    check_schema(schema, param="p", place="p")


def test_schema_of_the_official_client_is_valid() -> None:
    tool: Any = openai.pydantic_function_tool(Place)
    check_schema(tool["function"]["parameters"], param="p", place="p")


KEYWORDS = st.sampled_from(
    [
        "type", "required", "properties", "patternProperties", "additionalProperties", "items", "prefixItems", "anyOf",
        "allOf", "not", "enum", "const", "minLength", "maxItems", "minimum", "exclusiveMinimum", "multipleOf", "$ref",
        "uniqueItems", "dependencies", "dependentRequired", "definitions", "$defs", "default", "title", "if",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.just(0.5) | st.sampled_from(["string", "object", "a", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | st.just("a"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYWORDS, VALUES, max_size=4))
def test_valid_by_a_draft_is_valid_here(schema: dict[str, Any]) -> None:
    for validator in (Draft4Validator, Draft7Validator, Draft202012Validator):
        try:
            validator.check_schema(schema)
        except SchemaError:
            continue
        if not _is_stricter_elsewhere(schema):
            check_schema(schema, param="p", place="schema")
        return


def _is_stricter_elsewhere(value: Any) -> bool:
    """Whether the schema has a keyword that some draft does not have, and so accepts with any value."""
    if isinstance(value, list):
        return any(map(_is_stricter_elsewhere, value))
    if not isinstance(value, dict):
        return False
    newer = {"prefixItems", "dependentRequired", "$defs", "if", "dependencies", "definitions", "const", "$ref"}
    return bool(newer & value.keys()) or any(map(_is_stricter_elsewhere, value.values()))


def read(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_chat({"model": "m", "messages": HI} | fields, reject_unknown=False)
    return caught.value


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize("choice", [None, "auto", "none", "required"])
@pytest.mark.parametrize("bad", [{"properties": []}, {"type": "strnig"}, {"required": 1}])
def test_tool_schemas_are_checked_with_any_tool_choice(choice: str | None, bad: Any) -> None:
    error = read(tools=[tool("f", {"type": "object"}), tool("g", bad)], tool_choice=choice)
    assert error.param == "tools[1].function.parameters"
    assert error.message.startswith("tools[1].function.parameters.")


def test_response_format_schema_need_not_be_an_object() -> None:
    format = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array", "items": {"type": "x"}}}}
    error = read(response_format=format)
    assert error.param == "response_format"
    assert error.message.startswith("response_format.json_schema.schema.items.type")
    format["json_schema"]["schema"]["items"] = {}  # type: ignore[index]
    read_chat({"model": "m", "messages": HI, "response_format": format}, reject_unknown=False)
