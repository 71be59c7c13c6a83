"""Constraints and texts: allowed, forbidden, and constraints that are refused."""

from __future__ import annotations

import json
from itertools import islice, product
from time import monotonic
from typing import Any

import pytest

from engine_svc.constraint import Constraint
from svclib.errors import InvalidRequest
from tests.engine_svc.grammar.given import accepts, choice, compiled, schema

TEXT_OF_20: dict[str, Any] = {"type": "string", "maxLength": 20}
CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
API: dict[str, Any] = {
    "$ref": "#/components/schemas/Tree",
    "components": {
        "schemas": {
            "Tree": {
                "type": "object",
                "properties": {"x": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
            }
        }
    },
}
"""As FastAPI writes it."""
LARGE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string", "maxLength": 65536},
        "l": {"type": "array", "maxItems": 100_000, "items": {"type": "number"}},
    },
    "required": ["s", "l"],
    "additionalProperties": False,
}


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        inner = {"items": inner}
    return inner


def chained(links: int, depth: int) -> dict[str, Any]:
    """A chain of definitions, each with its reference at this depth."""
    definitions: dict[str, Any] = {f"d{links}": {"type": "null"}}
    for number in range(links):
        inner: dict[str, Any] = {"$ref": f"#/$defs/d{number + 1}"}
        for _ in range(depth):
            inner = {"items": inner}
        definitions[f"d{number}"] = inner
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def repeated_types(depth: int) -> dict[str, Any]:
    """Visiting the property once for each type would take 8 times as many visits with every level."""
    inner: dict[str, Any] = {"$ref": "#"}
    for _ in range(depth):
        inner = {"type": ["object"] * 8, "properties": {"a": inner}, "required": ["a"]}
    return inner


def only_required(depth: int, names: tuple[str, ...] = ("a", "b")) -> dict[str, Any]:
    """Copying the schema of additional properties for each name would triple the text with every level."""
    inner: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        inner = {"required": list(names), "additionalProperties": inner}
    return inner


def visited_in_vain(links: int, width: int) -> dict[str, Any]:
    """A chain of definitions, each after ``width`` schemas that are visited again in every round."""
    definitions: dict[str, Any] = {f"d{links}": {"type": "null"}}
    for number in range(links):
        definitions[f"d{number}"] = {"allOf": [{}] * width + [{"$ref": f"#/$defs/d{number + 1}"}]}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def one_target_in_many_spellings(count: int, width: int) -> dict[str, Any]:
    """References with different spellings, all to the same large schema."""
    letters = [(letter, f"%{ord(letter):02x}") for letter in "definitions"]
    names = ["".join(spelling) for spelling in islice(product(*letters), count)]
    large: dict[str, Any] = {"properties": {f"a{number}": {} for number in range(width)}}
    return {"anyOf": [{"$ref": f"#/{name}/large"} for name in names], "definitions": {"large": large}}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (TEXT_OF_20, r'"say \"hi\"\n"'),
        (TEXT_OF_20, '"日本語"'),
        (TEXT_OF_20, r'"\u00e9"'),
        (TEXT_OF_20, r'"\ud83d\ude00 is one character"'),
        (TEXT_OF_20, '"12345678901234567890"'),
        (TEXT_OF_20, '""'),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "{}"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, '{"a":"x"}'),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, r'{"a":"\u00e9"}'),
        (CLOSED, '{"a": "x"}'),
        (CLOSED, '{\n    "a": "x"\n}'),
        ({"type": "integer"}, "-120"),
        ({"type": "number"}, "1.5e-7"),
        ({"enum": ["a", 1, None]}, "null"),
        ({"type": "string", "pattern": "^(a+)+$"}, f'"{"a" * 200}"'),
        ({"type": "string", "pattern": "b"}, '"abc"'),
        ({"const": {"b": 1, "a": "é"}}, '{"b":1,"a":"é"}'),
        ({}, '[{"any":[1,"thing"]},null]'),
        (API, '{"x":[{"x":[]}]}'),
        ({"properties": {"x" * 80: {}}}, "{}"),
        ({"properties": {"x" * 81: {}}}, "{}"),
        ({"properties": {"x" * 100: {}}}, "{}"),
        ({"$ref": "#/x~0y", "x~y": {"enum": ["a"]}}, '"a"'),
    ],
)
def test_allowed(value: Any, text: str) -> None:
    assert accepts(schema(value), text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (TEXT_OF_20, '"123456789012345678901"'),
        (TEXT_OF_20, '"\n"'),
        (TEXT_OF_20, r'"\ud83d"'),
        (CLOSED, "{}"),
        (CLOSED, '{"a":"x","b":1}'),
        (CLOSED, '{"a":"x"} '),
        (CLOSED, ' {"a":"x"}'),
        (CLOSED, '{\n\n"a":"x"}'),
        (CLOSED, '{"a":  "x"}'),
        (CLOSED, "{" + "\n" + " " * 25 + '"a":"x"}'),
        ({"type": "integer"}, "01"),
        ({"type": "integer"}, "1.5"),
        ({"type": "integer"}, ""),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, r'{"\u0061":"x"}'),
        ({"type": "object", "properties": {"é": {"type": "integer"}}}, r'{"\u00e9":"x"}'),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a":1,"a":"x"}'),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["b"]}]}, r'{"b":1,"\u0061":"x"}'),
        ({"patternProperties": {"^a": {"type": "integer"}}}, r'{"\u0061":"x"}'),
        ({"required": ["a"], "additionalProperties": {"type": "integer"}}, r'{"a":1,"\u0061":"x"}'),
        (API, '{"x":[{"x":[0]}]}'),
        (API, r'{"\u0078":0}'),
    ],
)
def test_forbidden(value: Any, text: str) -> None:
    assert not accepts(schema(value), text)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}, "nothing but itself"),
        ({"$ref": "#"}, "nothing but itself"),
        ({"$ref": "http://example.invalid/s.json"}, "only references into the schema"),
        ({"$ref": "file:///etc/passwd"}, "only references into the schema"),
        ({"$ref": "other.json#/a"}, "only references into the schema"),
        ({"type": "string", "pattern": "["}, "unclosed character class"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": r"(a)\1"}, "backreferences"),
        ({"type": "string", "pattern": "(" * 3000 + ")" * 3000}, "pattern"),
        ({"type": "string", "pattern": "a" * 4097}, "4096 characters"),
        ({"type": "strin"}, "strin"),
        ({"type": "string", "format": "postcode"}, "postcode"),
        ({"not": {"type": "string"}}, "not"),
        ({"if": {}, "then": {}}, "if"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "contains": {}}, "contains"),
        ({"propertyNames": {"minLength": 1}}, "propertyNames"),
        ({"unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"$dynamicRef": "#a"}, r"\$dynamicRef"),
        ({"disallow": "string"}, "disallow"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
        ({"enum": []}, "empty"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
        ({"type": "string", "minLength": -1}, "minLength"),
        ({"type": "integer", "minimum": 1.2, "maximum": 1.8}, "no integer"),
        ({"type": "integer", "minimum": 2**53 + 1}, "2\\^53"),
        ({"type": "object", "minProperties": 2}, "minProperties"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "draft"),
        ({"$schema": "x" * 5000}, "drafts 4 to 2020-12"),
        (nested(65), "64 levels"),
        (chained(40, 55), "2000 levels"),
        (chained(65, 0), "more than 64 times"),
        (chained(501, 0), "500 different references"),
        (visited_in_vain(60, 1000), "too large for its references"),
        (repeated_types(30), "nothing but itself"),
        ({"$ref": "#/x", "x": {"$ref": "#/x"}}, "nothing but itself"),
        ({"$ref": "#/x", "x": {"type": "string", "pattern": "[a&&b]"}}, "must be escaped"),
        ({"$ref": "#/x/0", "x": [{"items": {"minimum": 2**53 + 1}}]}, "2\\^53"),
        ({"$ref": "#/x" + "y" * 5000}, "leads nowhere"),
        ({"properties": 5, "required": ["a"]}, "properties must be an object"),
        ({"required": [["a"]]}, "required must hold strings"),
        ({"type": 5, "anyOf": [{"$ref": "#"}]}, "type must be a string or an array"),
        ({"items": {"minItems": "1"}, "anyOf": [{"$ref": "#/items"}]}, "#/items: minItems must be an integer"),
        ("[" * 100_000, "64 levels"),
        ({"properties": {f"p{n}": {} for n in range(1001)}}, "1000 properties"),
        ("[]", "must be a JSON object"),
        ("true", "must be a JSON object"),
        ("", "Expecting value"),
        ('{"minimum": NaN}', "NaN"),
        (json.dumps({"enum": ["x" * 1000] * 300}), "bytes at most"),
    ],
)
def test_refused(value: Any, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        compiled(schema(value))
    assert caught.value.param == "json_schema"
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "value",
    [
        nested(60),
        chained(60, 30),
        LARGE,
        {"enum": [f"value {n}" for n in range(10_000)]},
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1000)}},
        {"type": "object", "properties": {"x" * 5000: {"type": "string"}}},
        {"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"},
        {"type": "array", "minItems": 10**9},
        repeated_types(30),
        only_required(60),
        only_required(30, ("a",)),
        {"type": ["array"] * 20_000, "prefixItems": [{"$ref": "#"}] * 5_000, "minItems": 5_001},
        visited_in_vain(60, 10),
        visited_in_vain(60, 1000),
        one_target_in_many_spellings(500, 1000),
        {"$ref": "#" + "/x" * 100_000},
    ],
)
def test_large_schemas_compile_fast_or_are_refused(value: Any) -> None:
    started = monotonic()
    try:
        compiled(schema(value))
    except InvalidRequest:
        assert value is not LARGE
    assert monotonic() - started < 20  # It takes a tenth of a second, or would never end.


def test_options_of_the_compiler_in_a_schema_change_nothing() -> None:
    lenient = {"x-guidance": {"lenient": True, "whitespace_pattern": "x"}}
    with pytest.raises(InvalidRequest, match="not"):
        compiled(schema({"not": {}} | lenient))
    assert not accepts(schema({"type": "array"} | lenient), "[x]")


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (Constraint("json_object"), ["{}", '{"a": [1]}'], ["[]", '"a"', ""]),
        (Constraint("regex", "[a-c]+x?"), ["abc", "ax"], ["x", "axx", "abcd", ""]),
        (Constraint("regex", "^(a|b)$"), ["a", "b"], ["ab", "^a$"]),
        (Constraint("regex", "a/b"), ["a/b"], ["a\\/b"]),
        (Constraint("regex", "größe|日本"), ["größe", "日本"], ["groesse"]),
        (choice("yes", "yes, please", 'say "no"\n'), ["yes", "yes, please", 'say "no"\n'], ["yes,", "no", ""]),
        (choice("é", "a/b"), ["é", "a/b"], ["e"]),
        (Constraint("grammar", 'start: "a" WORD*\nWORD: /b+/'), ["a", "abbb"], ["b", "ac"]),
        (Constraint("grammar", 'root ::= "x" num\nnum ::= [0-9]+'), ["x12"], ["x", "12"]),
        (Constraint("grammar", 'start: "<" %json {"type": "null"} ">"'), ["<null>"], ["null", "<1>"]),
        (Constraint("grammar", r'start: "%json {" /%json \{/ | "a" // %json {'), ["%json {%json {", "a"], ["{"]),
    ],
)
def test_other_constraints(constraint: Constraint, good: list[str], bad: list[str]) -> None:
    grammar = compiled(constraint)
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (Constraint("regex", "["), "unclosed character class"),
        (Constraint("regex", ""), "no text matches"),
        (Constraint("regex", "(?i)a"), "flags"),
        (Constraint("regex", "[a&&b]"), "must be escaped"),
        (choice(), "choices"),
        (choice("a", ""), "empty"),
        (choice(*["a"] * 10_001), "choices"),
        (choice("a" * 262_145), "bytes at most"),
        (Constraint("grammar", "start: nothing"), "unknown name"),
        (Constraint("grammar", "start: start"), "no text matches"),
        (Constraint("grammar", "%%%"), "neither"),
        (Constraint("grammar", ""), "neither"),
        (Constraint("grammar", "start: " + "(" * 10_000 + '"a"' + ")" * 10_000), "nested"),
        (Constraint("grammar", "root ::= " + "(" * 5_000 + '"a"' + ")" * 5_000), "neither"),
        (Constraint("grammar", 'root ::= "' + "a" * 16_384 + '"'), "16384 characters"),
        (Constraint("grammar", "\n" * 250_000), "16384 characters"),
        (Constraint("grammar", "root ::= " + "x" * 16_000 + "!" * 300), "neither|unknown"),
        (Constraint("grammar", "start: A0\n" + "".join(f"A{n}: A{n + 1}\n" for n in range(500))), "500 rules"),
        (Constraint("grammar", "start: " + '"\\' * 120_000), "lexer error"),
        (Constraint("grammar", "start: " + "/\\" * 120_000), "lexer error"),
        (Constraint("grammar", "start: %json" + " " * 250_000), "json"),
        (Constraint("grammar", "start: %json {"), "not followed by a JSON object"),
        (Constraint("grammar", 'start: %json {"$ref": "#"}'), "nothing but itself"),
        (Constraint("grammar", 'start: %json {"not": {}, "x-guidance": {"lenient": true}}'), "not"),
    ],
)
def test_other_constraints_refused(constraint: Constraint, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        compiled(constraint)
    assert (caught.value.param or "").partition(".")[0] == constraint.kind
    assert len(caught.value.message) < 500
