from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine_svc.constraint import Thinking
from engine_svc.grammar.reasoning import Constrained, Free, ThinkingGate, Undecided

SPELLED = (b"<think>", b"</think>", b"</", b"think", b">", b">\n\n", b">{", b"a", b" ", b"<", b"</think>x")
OPENING, CLOSING = (0,), (2, 3, 4)
OPEN = Thinking(True, (), CLOSING)

outputs = st.lists(st.integers(0, len(SPELLED) - 1), max_size=20)


def gate(thinking: Thinking) -> ThinkingGate:
    return ThinkingGate(thinking, SPELLED)


@given(output=outputs)
def test_the_first_closing_tag_ends_the_reasoning(output: list[int]) -> None:
    text = b"".join(SPELLED[token_id] for token_id in output)
    before, tag, behind = text.partition(b"</think>")
    found = gate(OPEN).position(output)
    if not tag:
        assert found == Free()
        return
    assert isinstance(found, Constrained)
    rest = b"".join(SPELLED[token_id] for token_id in output[found.start :])
    assert (found.rest + rest).lstrip() == behind.lstrip()
    assert len(b"".join(SPELLED[token_id] for token_id in output[: found.start - 1])) < len(before + tag)


@given(
    output=outputs, thinking=st.sampled_from([OPEN, Thinking(False, OPENING, CLOSING), Thinking(False, (9, 7), (1,))])
)
def test_reading_token_by_token_finds_the_same(output: list[int], thinking: Thinking) -> None:
    growing = gate(thinking)
    for count in range(len(output) + 1):
        found = growing.position(output[:count])
    assert found == gate(thinking).position(output)


def test_an_undecided_output() -> None:
    thinking = Thinking(False, (9, 3, 4), (1,))
    assert gate(thinking).position([]) == Undecided(9)
    assert gate(thinking).position([9, 3]) == Undecided(4)
    assert gate(thinking).position([9, 7]) == Constrained(0)
    assert gate(thinking).position([7]) == Constrained(0)
    assert gate(thinking).position([9, 3, 4, 7]) == Free()
    assert gate(thinking).position([9, 3, 4, 7, 1]) == Constrained(5)
