from __future__ import annotations

import pytest

from engine_svc.constraint import Constraint
from engine_svc.grammar import refused
from engine_svc.grammar.refused import RefusedConstraints
from tests.engine_svc.grammar.given import choice


def add(remembered: RefusedConstraints, constraint: Constraint) -> None:
    for _ in range(refused.MIN_REFUSALS):
        remembered.add(constraint)


def test_one_refusal_does_not_count() -> None:
    remembered = RefusedConstraints()
    remembered.add(choice("a"))
    assert choice("a") not in remembered
    remembered.add(choice("a"))
    assert choice("a") in remembered


def test_kind_text_and_choices_tell_constraints_apart() -> None:
    remembered = RefusedConstraints()
    add(remembered, Constraint("regex", "a"))
    add(remembered, choice("ab", "c"))
    assert Constraint("regex", "a") in remembered
    assert choice("ab", "c") in remembered
    for other in (Constraint("grammar", "a"), Constraint("regex", "b"), choice("a", "bc"), choice("abc")):
        assert other not in remembered


def test_the_least_recently_used_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "MAX_REMEMBERED", 2)
    remembered = RefusedConstraints()
    for text in ("a", "b"):
        add(remembered, Constraint("regex", text))
    assert Constraint("regex", "a") in remembered
    add(remembered, Constraint("regex", "c"))
    assert [text for text in "abc" if Constraint("regex", text) in remembered] == ["a", "c"]
