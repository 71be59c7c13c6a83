"""Random walks through the masks: ``jsonschema`` finds every output valid."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from engine_svc.constraint import Constraint
from engine_svc.grammar.matcher import CompiledGrammar
from svclib.errors import InvalidRequest
from tests.engine_svc.grammar.given import EOS, compiled, schema
from tests.engine_svc.grammar.test_schema_suite import DRAFT_4, groups
from tests.schemas import SCHEMAS

MOST_TOKENS = 300
WALKS = 4

OPEN: dict[str, Any] = {
    "open": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "open, of one type": {
        "type": "object",
        "properties": {"a": {"type": "null"}},
        "required": ["a", "b"],
        "additionalProperties": {"type": "boolean"},
    },
    "open, with signs": {"type": "object", "properties": {'"': {"type": "null"}, "\\": {"type": "null"}}},
    "open, empty name": {"type": "object", "properties": {"": {"type": "null"}, "é": {"type": "null"}}},
    "open, merged": {"allOf": [{"properties": {"a": {"type": "null"}}}, {"type": "object", "required": ["b"]}]},
    "open, beside patterns": {"type": "object", "patternProperties": {"^[a-z]": {"type": "null"}}},
    "open, inside": {"type": "array", "items": {"type": "object", "properties": {"a": {"const": 1}}}, "minItems": 1},
    "at least two": {"type": "object", "required": ["a"], "minProperties": 2},
    "a list behind": {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}], "items": {"type": "boolean"}},
    "decimals": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 0.25},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": -50},
}
LATER = SCHEMAS | OPEN


def walk(grammar: CompiledGrammar, seed: int) -> str | None:
    """The text of a random output; None if it reached ``MOST_TOKENS``."""
    matcher, output, noise = grammar.matcher((EOS,), (EOS,)), bytearray(), random.Random(seed)
    while len(output) < MOST_TOKENS:
        mask = matcher.allowed(list(output), may_end=True)
        if mask is None:
            return output.decode()
        token_id = noise.choice([n for n in mask.nonzero()[0].tolist() if n < 256 or n == EOS])
        if token_id == EOS:
            return output.decode()
        # Otherwise strings would rarely end: a quote would be as unlikely as any letter.
        output.append(ord('"') if mask[ord('"')] and noise.random() < 0.2 else token_id)
    return None


def walks(grammar: CompiledGrammar) -> list[Any]:
    texts = [text for seed in range(WALKS) if (text := walk(grammar, seed)) is not None]
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize("name", LATER)
def test_every_walk_is_valid(name: str) -> None:
    validator = jsonschema.Draft202012Validator(LATER[name])
    values = walks(compiled(schema(LATER[name])))
    assert values, "no walk has come to an end"
    for value in values:
        validator.validate(value)


def test_every_walk_through_the_suite_is_valid() -> None:
    checked = 0
    for group in groups():
        if isinstance(group.schema.get("multipleOf"), float):
            continue  # jsonschema divides, and is wrong about decimals
        try:
            grammar = compiled(schema({"$schema": DRAFT_4} | group.schema))
        except InvalidRequest:
            continue
        for value in walks(grammar):
            jsonschema.Draft4Validator(group.schema).validate(value)
            checked += 1
    assert checked > 100 or not groups()


def test_any_object_is_an_object() -> None:
    values = walks(compiled(Constraint("json_object")))
    assert values
    assert all(isinstance(value, dict) for value in values)
