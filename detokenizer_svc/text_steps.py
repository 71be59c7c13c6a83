"""Applies the text steps of a tokenizer's decoder incrementally.

The joined output equals the steps applied to the whole text at once; only text that a later piece can change is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from modelfiles.decoder_steps import ReplaceText, StripText, TextStep, stripped


class _Step(Protocol):
    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


class TextSteps:
    """Steps in sequence. ``at_start``: the text does not continue another one."""

    def __init__(self, steps: Sequence[TextStep], *, at_start: bool) -> None:
        self._steps = [_incremental(step, at_start=at_start) for step in steps]

    def feed(self, text: str) -> str:
        """The text that no later piece can change."""
        for step in self._steps:
            text = step.feed(text)
        return text

    def finish(self) -> str:
        """The text held back."""
        text = ""
        for step in self._steps:
            text = step.feed(text) + step.finish()
        return text


class _Replacing:
    """Replaces a pattern. Holds back what may be the start of the pattern."""

    def __init__(self, step: ReplaceText) -> None:
        self._step = step
        self._held = ""

    def feed(self, text: str) -> str:
        *before, rest = (self._held + text).split(self._step.pattern)
        kept = _partial_length(rest, self._step.pattern)
        self._held = rest[len(rest) - kept :]
        return self._step.content.join([*before, rest[: len(rest) - kept]])

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


class _Stripping:
    """Strips characters at both ends. Holds back what may be the end of the text."""

    def __init__(self, step: StripText, *, at_start: bool) -> None:
        self._step = step
        self._to_cut = step.start if at_start else 0
        self._held = ""

    def feed(self, text: str) -> str:
        text = self._held + self._without_start(text)
        end = stripped(text, StripText(self._step.content, 0, self._step.stop))
        self._held = text[len(end) :]
        return end

    def finish(self) -> str:
        self._held = ""
        return ""

    def _without_start(self, text: str) -> str:
        if not self._to_cut or not text:
            return text
        rest = stripped(text, StripText(self._step.content, self._to_cut, 0))
        self._to_cut = self._to_cut - (len(text) - len(rest)) if not rest else 0
        return rest


def _incremental(step: TextStep, *, at_start: bool) -> _Step:
    return _Replacing(step) if isinstance(step, ReplaceText) else _Stripping(step, at_start=at_start)


def _partial_length(text: str, pattern: str) -> int:
    """Length of the longest suffix of ``text`` that is a proper prefix of ``pattern``."""
    longest = min(len(text), len(pattern) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(pattern[:size])), 0)
