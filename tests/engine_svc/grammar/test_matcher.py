from __future__ import annotations

import pytest
from llguidance import LLParserLimits

from engine_svc.constraint import Constraint, Thinking
from svclib.errors import InvalidRequest
from tests.engine_svc.grammar.given import (
    CLOSE,
    EOS,
    START,
    choice,
    compiled,
    ids,
    matcher,
    schema,
    spelled,
    texts_of,
    word,
)

DIGITS = set("0123456789")
OPEN = Thinking(True, (), (CLOSE,))
UNDECIDED = Thinking(False, (START,), (CLOSE,))
IN_WORDS = Thinking(True, (), (word("</thi"), word("nk>")))


def test_a_number_may_end_or_go_on() -> None:
    mask = matcher(schema({"type": "integer"})).allowed(spelled("1"), may_end=True)
    assert texts_of(mask) == DIGITS | {"<eos>"}


def test_nothing_follows_what_is_complete() -> None:
    one = matcher(choice("yes", "no"))
    assert texts_of(one.allowed([], may_end=True)) == {"y", "n", "yes", "no", "ye"}
    assert not one.is_over(spelled("ye"))
    assert one.is_over(spelled("yes"))
    assert one.allowed(spelled("yes"), may_end=True) is None


def test_a_token_of_several_letters_matches_like_its_letters() -> None:
    assert texts_of(matcher(choice("yes", "ya")).allowed([], may_end=True)) == {"y", "ye", "yes", "ya"}
    assert matcher(choice("yes")).is_over([word("yes")])


def test_a_new_matcher_has_the_same_mask_for_the_same_output() -> None:
    constraint = schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    output, old = spelled('{"a": 12'), matcher(constraint)
    for count in range(len(output)):
        old.allowed(output[:count], may_end=True)
    known, anew = old.allowed(output, may_end=True), matcher(constraint).allowed(output, may_end=True)
    assert known is not None
    assert anew is not None
    assert known.tolist() == anew.tolist()


def test_matchers_of_one_grammar_are_independent() -> None:
    grammar = compiled(choice("ab", "cd"))
    first, second = grammar.matcher((EOS,), (EOS,)), grammar.matcher((EOS,), (EOS,))
    first.allowed(spelled("a"), may_end=True)
    assert texts_of(second.allowed(spelled("c"), may_end=True)) == {"d"}
    assert texts_of(first.allowed(spelled("a"), may_end=True)) == {"b"}


def test_stop_tokens_are_allowed_where_the_output_is_complete() -> None:
    mask = matcher(schema({"type": "integer"}), ends=(EOS, ord("x"))).allowed(spelled("1"), may_end=True)
    assert texts_of(mask) == DIGITS | {"<eos>", "x"}


def test_without_may_end_or_ends_the_output_goes_on_while_it_can() -> None:
    number = schema({"type": "integer"})
    assert texts_of(matcher(number).allowed(spelled("1"), may_end=False)) == DIGITS
    assert texts_of(matcher(number, ends=()).allowed(spelled("1"), may_end=True)) == DIGITS
    assert matcher(choice("yes")).allowed(spelled("yes"), may_end=False) is None
    assert matcher(choice("yes"), ends=()).allowed(spelled("yes"), may_end=True) is None


def test_a_stop_token_that_is_the_only_allowed_text_is_allowed_before_min_tokens() -> None:
    one = matcher(choice("yes"), ends=(ord("e"),))
    assert texts_of(one.allowed(spelled("y"), may_end=False)) == {"e"}


def test_a_forbidden_token_ends_the_request_with_an_error() -> None:
    with pytest.raises(InvalidRequest, match="cannot be followed") as caught:
        matcher(choice("yes")).allowed(spelled("n"), may_end=True)
    assert caught.value.param == "choice"


def test_reasoning_is_unconstrained_but_cannot_end_the_output() -> None:
    one = compiled(choice("yes"), thinking=OPEN).matcher((EOS,), (EOS, ord("x")))
    mask = one.allowed(spelled("hm"), may_end=True)
    assert mask is not None
    assert not mask[EOS]
    assert mask.sum() == len(mask) - 1
    assert not one.is_over(spelled("hm"))


def test_stop_tokens_during_reasoning_wait_for_min_tokens() -> None:
    one = compiled(choice("yes"), thinking=OPEN).matcher((EOS,), (EOS, ord("x")))
    assert "x" not in texts_of(one.allowed(spelled("hm"), may_end=False))
    assert "x" in texts_of(one.allowed(spelled("hm"), may_end=True))


def test_the_constraint_begins_after_reasoning_ends() -> None:
    one = compiled(choice("yes"), thinking=OPEN).matcher((EOS,), (EOS,))
    assert texts_of(one.allowed(ids("no ", CLOSE), may_end=True)) == {"y", "ye", "yes"}
    assert one.is_over(ids("no ", CLOSE, "yes"))


def test_an_output_begins_with_reasoning_or_with_the_constraint() -> None:
    one = compiled(choice("yes"), thinking=UNDECIDED).matcher((EOS,), (EOS,))
    assert texts_of(one.allowed([], may_end=True)) == {"y", "ye", "yes", "<think>"}
    assert texts_of(one.allowed(spelled("y"), may_end=True)) == {"e"}
    thinking = compiled(choice("yes"), thinking=UNDECIDED).matcher((EOS,), (EOS,))
    assert "!" in texts_of(thinking.allowed([START], may_end=True))
    assert texts_of(thinking.allowed([START, CLOSE], may_end=True)) == {"y", "ye", "yes"}


def test_an_opening_tag_of_several_tokens() -> None:
    thinking = Thinking(False, tuple(spelled("<t>")), (CLOSE,))
    one = compiled(choice("yes"), thinking=thinking).matcher((EOS,), (EOS,))
    assert texts_of(one.allowed([], may_end=True)) == {"y", "ye", "yes", "<"}
    assert texts_of(one.allowed(spelled("<"), may_end=True)) == {"t"}
    assert "!" in texts_of(one.allowed(spelled("<t>"), may_end=True))


def test_the_opening_tag_and_the_constraint_may_share_a_prefix() -> None:
    thinking = Thinking(False, tuple(spelled("<t>")), (CLOSE,))
    grammar = compiled(choice("<yes>"), thinking=thinking)
    obeying, thinks = grammar.matcher((EOS,), (EOS,)), grammar.matcher((EOS,), (EOS,))
    for one in (obeying, thinks):
        assert texts_of(one.allowed([], may_end=True)) == {"<"}
        assert texts_of(one.allowed(spelled("<"), may_end=True)) == {"t", "y", "ye", "yes"}
    assert texts_of(obeying.allowed(spelled("<y"), may_end=True)) == {"e"}
    assert "!" in texts_of(thinks.allowed(spelled("<t>"), may_end=True))
    assert texts_of(thinks.allowed([*spelled("<t>hm"), CLOSE], may_end=True)) == {"<"}


@pytest.mark.parametrize(
    ("closing", "next_texts"),
    [
        (ids(word("</thi"), word("nk>")), {"{", '{"'}),
        (ids("</think>"), {"{", '{"'}),
        (ids(word("</thi"), word("nk>\n\n")), {"{", '{"'}),
        (ids(word("</thi"), word("nk>{")), {'"', '":', "}", " ", "\n"}),
    ],
)
def test_the_closing_tag_may_be_spelled_in_any_way(closing: list[int], next_texts: set[str]) -> None:
    one = compiled(Constraint("json_object"), thinking=IN_WORDS).matcher((EOS,), (EOS,))
    assert texts_of(one.allowed(ids("so", *closing), may_end=True)) == next_texts


def test_text_after_the_closing_tag_in_the_same_token_must_match() -> None:
    one = compiled(choice("yes"), thinking=IN_WORDS).matcher((EOS,), (EOS,))
    with pytest.raises(InvalidRequest, match="cannot be followed"):
        one.allowed(ids(word("</thi"), word("nk>{")), may_end=True)


def test_a_constraint_too_complex_within_the_opening_tag_is_an_error_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine_svc.grammar.building._limits", lambda: LLParserLimits(step_lexer_fuel=5))
    thinking = Thinking(False, tuple(spelled("<t>")), (CLOSE,))
    one = compiled(Constraint("regex", "<(a|b|c|<){1,50}xyz"), thinking=thinking).matcher((EOS,), (EOS,))
    with pytest.raises(InvalidRequest, match="cannot be followed any further: lexer error"):
        one.allowed(spelled("<"), may_end=True)
