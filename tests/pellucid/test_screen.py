from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from pellucid.screen import Screen, without_controls


@given(st.text())
def test_no_control_character_reaches_the_terminal(text: str) -> None:
    shown = without_controls(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in shown)
    assert [c for c in text if c in shown] == list(shown)


def test_a_pipe_gets_every_byte() -> None:
    out = io.StringIO()
    screen = Screen(out, is_terminal=False)
    screen.content("a\x1b[31mb")
    screen.end("stopped")
    assert out.getvalue() == "a\x1b[31mb\n"


def test_on_a_terminal_reasoning_is_dimmed_until_the_answer_begins() -> None:
    out = io.StringIO()
    screen = Screen(out, is_terminal=True)
    for text in ("let me", " see"):
        screen.reasoning(text)
    screen.content("so")
    screen.end("stopped")
    assert out.getvalue() == "\x1b[2mlet me see\x1b[0m\nso\n\x1b[2m(stopped)\x1b[0m\n"


def test_interrupted_reasoning_resets_the_terminal() -> None:
    out = io.StringIO()
    screen = Screen(out, is_terminal=True)
    screen.reasoning("let me")
    screen.end()
    assert out.getvalue() == "\x1b[2mlet me\x1b[0m\n\n"


def test_a_pipe_gets_no_reasoning() -> None:
    out = io.StringIO()
    screen = Screen(out, is_terminal=False)
    screen.reasoning("let me")
    screen.content("so")
    screen.end()
    assert out.getvalue() == "so\n"
