"""A small real model answers all fifty schemas with valid JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine_svc.constraint import Constraint
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.grammar.vocabulary import load_grammar_vocabulary
from engine_svc.offline.text import load_text
from engine_svc.request import Request, SamplingParams
from modelfiles.gguf_vocabulary import read_vocabulary
from tests.engine_svc.given import Answer
from tests.engine_svc.running import load, run
from tests.schemas import SCHEMAS

MAX_TOKENS = 200

OPEN: dict[str, Any] = {
    "a person as JSON": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    },
    "a number between a half and three quarters": {
        "type": "object",
        "properties": {"x": {"type": "number", "minimum": 0.5, "maximum": 0.75}},
        "required": ["x"],
        "additionalProperties": False,
    },
    "pi": {"type": "number"},
    "a large integer": {"type": "integer", "minimum": 10**9},
    "a dog": {"properties": {"name": {"type": "string", "maxLength": 12}, "weight": {"type": "number"}}},
    "an order, as pydantic writes it": {
        "$defs": {
            "Item": {
                "properties": {
                    "name": {"maxLength": 12, "title": "Name", "type": "string"},
                    "price": {"title": "Price", "type": "number"},
                    "note": {"anyOf": [{"maxLength": 12, "type": "string"}, {"type": "null"}], "default": None},
                },
                "required": ["name", "price"],
                "title": "Item",
                "type": "object",
            }
        },
        "properties": {
            "id": {"title": "Id", "type": "integer"},
            "items": {"items": {"$ref": "#/$defs/Item"}, "maxItems": 2, "title": "Items", "type": "array"},
        },
        "required": ["id", "items"],
        "title": "Order",
        "type": "object",
    },
}
"""Open by JSON Schema, or with unbounded digits: a small model would go on until it is cut off."""
ALL = SCHEMAS | OPEN


@pytest.fixture(scope="module")
def answers(smollm2: Path) -> dict[str, tuple[Answer, str]]:
    """The model's answers to all schemas, in one batch."""
    tokenizer, ends = load_text(str(smollm2)).tokenizer, read_vocabulary(smollm2).turn_ends
    runner = load(str(smollm2), dtype="auto", block_size=16, num_blocks=1024, num_threads=None)
    compiler = GrammarCompiler(load_grammar_vocabulary(str(smollm2), runner.info.vocab_size))

    def request(name: str, schema: Any) -> Request:
        constraint = Constraint("json_schema", json.dumps(schema))
        messages = [{"role": "user", "content": f"Give me an example of this: {name}"}]
        prompt: Any = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        params = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, constraint=constraint)
        return Request(name, tuple(prompt), params, frozenset(ends), grammar=compiler.compile(constraint))

    said = run(runner, [request(*item) for item in ALL.items()], block_size=16, max_num_seqs=64)
    texts: Any = [tokenizer.decode(answer.token_ids[0], skip_special_tokens=True) for answer in said]
    return dict(zip(ALL, zip(said, texts, strict=True), strict=True))


def test_there_are_fifty() -> None:
    assert len(SCHEMAS) == 50


@pytest.mark.parametrize("name", ALL)
def test_the_answer_is_valid(answers: dict[str, tuple[Answer, str]], name: str) -> None:
    answer, text = answers[name]
    assert (answer.error, answer.finish_reasons[0]) == (None, "stop"), text
    jsonschema.validate(json.loads(text), ALL[name])
