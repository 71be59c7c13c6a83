"""The steps of the ``decoder`` in a ``tokenizer.json``: those for each token, and those for the whole text.

Format: https://github.com/huggingface/tokenizers/tree/main/tokenizers/src/decoders. Steps for tokens run once, when
tokens are loaded; steps for the text run incrementally. Steps that cannot run incrementally are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from modelfiles.errors import ModelFileError

WORD_STEPS: Final = ("Replace", "Strip", "Metaspace", "ByteFallback", "Fuse")


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Replaces every ``pattern``, from the left, by ``content``."""

    pattern: str
    content: str


@dataclass(frozen=True, slots=True)
class StripText:
    """Strips up to ``start`` and ``stop`` characters ``content`` from the start and the end."""

    content: str
    start: int
    stop: int


TextStep = ReplaceText | StripText

WordStep = Callable[[str, bool], str]
"""A token, and whether it is the first of the text, to the decoded token."""


def flattened(decoder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps of a decoder, in order, with nested sequences flattened."""
    if decoder.get("type") == "Sequence":
        for step in decoder["decoders"]:
            yield from flattened(step)
    elif decoder:
        yield decoder


def text_step(step: dict[str, Any]) -> TextStep:
    """A step for the whole text. Raises ``ModelFileError`` if it cannot run incrementally."""
    match step:
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)} if pattern:
            return ReplaceText(pattern, content)
        case {"type": "Strip", "content": str(content), "start": int(start), "stop": int(stop)}:
            return StripText(content, start, stop)
    raise ModelFileError(f"unsupported decoder step {named(step)} on the whole text")


def word_step(step: dict[str, Any]) -> WordStep:
    """A step for each token. Raises ``ModelFileError`` if it is not supported."""
    match step:
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)} if pattern:
            return lambda token, _: token.replace(pattern, content)
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(content)}:
            return _replace_regex(pattern, content)
        case {"type": "Strip", "content": str(content), "start": int(start), "stop": int(stop)}:
            return lambda token, _: stripped(token, StripText(content, start, stop))
        case {"type": "Metaspace"}:
            return _metaspace(step)
    raise ModelFileError(f"unsupported decoder step {named(step)}")


def stripped(text: str, step: StripText) -> str:
    """A text after ``step``."""
    begin = len(text) - len(text[: step.start].lstrip(step.content)) - len(text[step.start :])
    end = len(text)
    while end > begin and len(text) - end < step.stop and text[end - 1] == step.content:
        end -= 1
    return text[begin:end]


def named(step: dict[str, Any]) -> str:
    """The name of a step in errors."""
    pattern = step.get("pattern")
    return f"{step.get('type')!r}" + (f" of {pattern}" if pattern is not None else "")


def _metaspace(step: dict[str, Any]) -> WordStep:
    mark = str(step.get("replacement", "\u2581"))
    prepended = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never") != "never"
    return lambda token, is_first: token.replace(mark, "" if is_first and prepended else " ")


def _replace_regex(pattern: str, content: str) -> WordStep:
    """Uses the tokenizers library, because its regular expressions differ from Python's."""
    from tokenizers import Regex, decoders

    replace = decoders.Replace(Regex(pattern), content)
    return lambda token, _: str(replace.decode([token]))
