from __future__ import annotations

import pytest

from tests.tokenizer_svc import templates
from tokenizer_svc.reasoning import PromptTail, ReasoningState

CONTROLS = frozenset({"<|im_start|>", "<|im_end|>", "[/INST]", "<think>", "</think>"})
OPENING = "<|im_start|>assistant\n"
UNDECIDED, OPEN, CLOSED = ReasoningState.UNDECIDED, ReasoningState.OPEN, ReasoningState.CLOSED


def state(prompt: str, template: str = templates.THINKS, opening: str = OPENING) -> ReasoningState:
    return PromptTail(template, opening, CONTROLS).state(prompt)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("", UNDECIDED),
        ("<think>\n", OPEN),
        ("<think>", OPEN),
        ("<think>\n\n</think>\n\n", CLOSED),
        ("<think>\nso", OPEN),
        ("<think>\nso</think> and", CLOSED),
        ("</think>", CLOSED),
        ("<think>a</think><think>", OPEN),
        ("thinking", UNDECIDED),
    ],
)
def test_reasoning_state_from_the_end_of_a_prompt(tail: str, expected: ReasoningState) -> None:
    earlier = f"<|im_start|>user\n<think><|im_end|>\n{OPENING}<think>never closed<|im_end|>\n"
    assert state(OPENING + tail) is expected
    assert state(earlier + OPENING + tail) is expected


def test_tags_that_the_template_always_writes_are_not_part_of_the_opening() -> None:
    opens = f"{OPENING}<think>\n"
    assert state(f"hi{opens}", opening=opens) is OPEN
    assert state(f"hi{OPENING}<think>\n\n</think>\n\n", opening=opens) is CLOSED


def test_an_opening_without_control_tokens() -> None:
    prompt = "User: hi\nAssistant: <think>\nnever closed\nUser: ho\nAssistant: "
    assert state(prompt, templates.OPENS_THINKING, "Assistant: <think>\n") is UNDECIDED
    assert state(prompt + "<think>\n", templates.OPENS_THINKING, "Assistant: <think>\n") is OPEN


def test_without_a_generation_prompt_the_state_is_read_from_the_last_control_token() -> None:
    assert state("[INST]a[/INST]<think>b</think>c[INST]d[/INST]", opening="") is UNDECIDED
    assert state("[INST]a[/INST]<think>", opening="") is OPEN
    assert state("", opening="") is UNDECIDED


def test_a_template_without_reasoning() -> None:
    assert state(f"{OPENING}<think>", templates.CHATML) is CLOSED


def test_other_tags() -> None:
    assert state(f"{OPENING}[THINK]", "[THINK]") is OPEN
    assert state(f"{OPENING}<think>", "[THINK]") is UNDECIDED
    assert state(f"{OPENING}", "<|channel|><|message|>") is UNDECIDED
