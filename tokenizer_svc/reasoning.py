"""Whether the output starts inside reasoning, read from the end of the prompt."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tokenizer_svc.formats import THINK_TAGS, reasoning_format

_TAGS: Final = tuple(tag for tags in THINK_TAGS.values() for tag in tags)


class ReasoningState(Enum):
    """Whether the output starts inside reasoning."""

    UNDECIDED = "undecided"
    """The prompt does not decide; the output may start with an opening tag."""
    OPEN = "open"
    CLOSED = "closed"


class PromptTail:
    """Finds the last turn of a prompt, and reads its reasoning tags."""

    def __init__(self, template: str, generation_opening: str, controls: frozenset[str]) -> None:
        """``generation_opening``: the text that starts an assistant turn; ``controls``: spellings of control tokens."""
        self._format = reasoning_format(template)
        self._opening = _before_tags(generation_opening).rstrip()
        self._controls = controls.difference(_TAGS)

    def state(self, prompt: str) -> ReasoningState:
        """The state at the end of a prompt whose last turn is the assistant's."""
        if not self._format:
            return ReasoningState.CLOSED
        if self._format not in THINK_TAGS:
            return ReasoningState.UNDECIDED
        opening, closing = THINK_TAGS[self._format]
        tail = self._last_turn(prompt)
        opened, closed = tail.rfind(opening), tail.rfind(closing)
        if opened == closed:  # Neither tag is there.
            return ReasoningState.UNDECIDED
        return ReasoningState.OPEN if opened > closed else ReasoningState.CLOSED

    def _last_turn(self, prompt: str) -> str:
        if self._opening and self._opening in prompt:
            return prompt.rpartition(self._opening)[2]
        return prompt[max((_end(prompt, control) for control in self._controls), default=0) :]


def _before_tags(text: str) -> str:
    return text[: min((text.find(tag) for tag in _TAGS if tag in text), default=len(text))]


def _end(prompt: str, control: str) -> int:
    start = prompt.rfind(control)
    return 0 if start < 0 else start + len(control)
