"""An error in one of a grammar's schemas has the number of the schema in its param."""

from __future__ import annotations

import pytest

from engine_svc.constraint import Constraint
from svclib.errors import InvalidRequest
from tests.engine_svc.grammar import given

GOOD = '%json {"type": "string", "description": "a %json {\\"x\\": \\"/\\"} // #"}'


def fault(grammar: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        given.compiler().compile(Constraint("grammar", grammar))
    return caught.value


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ('{"not": {}}', "not"),
        ('{"$ref": "http://example.invalid/s"}', "example.invalid"),
        ('{"type": "string", "pattern": "["}', "regex"),
        ('{"type": "string", "pattern": "[a&&b]"}', "&&"),
        ('{"type": "integer", "minimum": 99999999999999999}', "minimum"),
    ],
)
@pytest.mark.parametrize("number", range(3))
def test_the_schema_at_fault_is_numbered(bad: str, says: str, number: int) -> None:
    schemas = [f"%json {bad}" if place == number else GOOD for place in range(3)]
    rules = [f'x{place}: "%json {{" /%json [{{]/ {schema}' for place, schema in enumerate(schemas)]
    error = fault("\n".join(["start: x0 | x1 | x2", *rules]))
    assert error.param == f"grammar.json[{number}]"
    assert says in error.message
    assert "failed to compile" not in error.message


@pytest.mark.parametrize("grammar", ["start: x", 'start: "a', "start: %json [", f"start: x\ny: {GOOD}", "start: /(/"])
def test_other_faults_are_of_the_grammar(grammar: str) -> None:
    assert fault(grammar).param == "grammar"
