from __future__ import annotations

import pytest

from engine_svc.constraint import Constraint
from engine_svc.grammar.building import MAX_LEXER_STATES
from engine_svc.grammar.follower import Fault, Follower
from tests.engine_svc.grammar.given import compiled, schema, spelled


def follower(constraint: Constraint) -> Follower:
    return Follower(compiled(constraint).start)


def test_a_text_may_use_more_lexer_states_than_a_matcher_has() -> None:
    one, text = follower(schema({"type": "string", "maxLength": 20_000})), spelled('"' + "x" * 20_000 + '"')
    for start in range(0, len(text), 50):
        one.read(text[start : start + 50])
        one.mask()
    assert one.is_accepting()
    assert 9 * len(text) > MAX_LEXER_STATES, "a matcher that is never replaced would be full"


def test_a_fresh_matcher_has_the_same_masks() -> None:
    one = follower(schema({"type": "array", "items": {"type": "string", "pattern": "^(a|b)*a(a|b){3}$"}}))
    for token_id in spelled('["abab",'):
        one.read([token_id])
        before = one.mask()
        one._renew()
        assert one.mask() == before


def test_what_the_grammar_does_not_allow_is_a_fault() -> None:
    with pytest.raises(Fault):
        follower(Constraint("regex", "ab")).read(spelled("ac"))


def test_looking_ahead_does_not_change_the_follower() -> None:
    one = follower(Constraint("regex", "abc"))
    one.read(spelled("a"))
    ahead = one.ahead(spelled("bc"))
    assert ahead is not None
    assert ahead.is_over()
    assert one.ahead(spelled("c")) is None
    assert not one.is_over()
    one.read(spelled("bc"))
    assert one.is_over()
