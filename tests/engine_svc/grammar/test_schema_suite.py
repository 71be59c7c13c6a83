"""The JSON Schema Test Suite: a group either compiles and is right about every instance, or is refused with a reason.

Properties come in the order of the schema, so an instance is accepted if it is in some order of its properties.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine_svc.grammar.matcher import CompiledGrammar
from svclib.errors import InvalidRequest
from tests.engine_svc.grammar.given import accepts, compiled, schema
from tests.fetch_schema_suite import FOLDER

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DISPUTED = {("format", "a valid protocol-relative URI")}
"""Later drafts call it a reference, and no URI."""

NOT_WRITTEN = {
    ("additionalProperties", "additional properties are allowed"),
    ("properties", "doesn't invalidate other properties"),
    ("bignum", "a bignum is an integer"),
    ("bignum", "a negative bignum is an integer"),
    ("bignum", "a bignum is a number"),
    ("bignum", "a negative bignum is a number"),
}
"""Valid, but not allowed: properties that no schema declares, and more than 17 digits."""

DOCUMENTATION = (Path(__file__).parents[3] / "docs" / "structured-output.md").read_text()
FIGURES = re.compile(r"Of (\d+) groups (\d+) compile and are right about all their (\d+) instances; (\d+) are refused")
ROW = re.compile(r"^\| `(\w+)` \| (\d+) of (\d+) \|$", re.MULTILINE)


class Group(NamedTuple):
    keyword: str
    description: str
    schema: dict[str, Any]
    tests: list[dict[str, Any]]


def groups() -> list[Group]:
    files = sorted(FOLDER.rglob("*.json"))
    return [
        Group(file.stem, one["description"], one["schema"], one["tests"])
        for file in files
        for one in json.loads(file.read_text())
    ]


def compile_group(group: Group) -> CompiledGrammar | str:
    """The grammar, or why it is refused."""
    try:
        return compiled(schema({"$schema": DRAFT_4} | group.schema))
    except InvalidRequest as error:
        return str(error)


def spellings(instance: Any) -> Iterator[str]:
    """An instance with the properties of its objects in every order."""
    if isinstance(instance, dict):
        names = {name: json.dumps(name, ensure_ascii=False) for name in instance}
        members = [[f"{names[name]}:{text}" for text in spellings(value)] for name, value in instance.items()]
        for order in permutations(members):
            yield from ("{" + ",".join(texts) + "}" for texts in product(*order))
    elif isinstance(instance, list):
        for values in product(*(list(spellings(item)) for item in instance)):
            yield "[" + ",".join(values) + "]"
    else:
        yield json.dumps(instance, ensure_ascii=False)


def wrong_about(group: Group, grammar: CompiledGrammar) -> list[str]:
    """The instances that the grammar is wrong about."""
    return [
        test["description"]
        for test in group.tests
        if any(accepts(grammar, text) for text in spellings(test["data"])) != _is_to_be_written(group, test)
        and (group.keyword, test["description"]) not in DISPUTED
    ]


def _is_to_be_written(group: Group, test: dict[str, Any]) -> bool:
    return test["valid"] and (group.keyword, test["description"]) not in NOT_WRITTEN


@pytest.fixture(scope="module")
def outcomes() -> list[tuple[Group, CompiledGrammar | str]]:
    if not FOLDER.is_dir():
        pytest.skip("the suite was not fetched: run python -m tests.fetch_schema_suite")
    return [(group, compile_group(group)) for group in groups()]


def test_what_compiles_is_right_about_every_instance(outcomes: list[tuple[Group, CompiledGrammar | str]]) -> None:
    wrong = {
        (group.keyword, group.description): mistakes
        for group, grammar in outcomes
        if not isinstance(grammar, str) and (mistakes := wrong_about(group, grammar))
    }
    assert wrong == {}


def test_the_figures_in_the_documentation(outcomes: list[tuple[Group, CompiledGrammar | str]]) -> None:
    groups_of = Counter(group.keyword for group, _ in outcomes)
    refused = Counter(group.keyword for group, grammar in outcomes if isinstance(grammar, str))
    instances = [
        (group.keyword, test["description"])
        for group, grammar in outcomes
        if not isinstance(grammar, str)
        for test in group.tests
    ]
    num_checked = sum(instance not in DISPUTED for instance in instances)
    num_groups, num_refused = groups_of.total(), refused.total()
    assert [tuple(map(int, figures)) for figures in FIGURES.findall(DOCUMENTATION)] == [
        (num_groups, num_groups - num_refused, num_checked, num_refused)
    ]
    rows = {keyword: (int(count), int(total)) for keyword, count, total in ROW.findall(DOCUMENTATION)}
    assert rows == {keyword: (count, groups_of[keyword]) for keyword, count in refused.items()}


def test_what_is_refused_is_refused_with_a_reason(outcomes: list[tuple[Group, CompiledGrammar | str]]) -> None:
    reasons = [grammar for _, grammar in outcomes if isinstance(grammar, str)]
    assert all(len(reason) > 10 for reason in reasons), reasons
