"""What the ``decoder`` of a ``tokenizer.json`` does, cut into what it does to each token and what to the whole text.

Format: https://github.com/huggingface/tokenizers/tree/main/tokenizers/src/decoders. Tokens can be prepared when they
are loaded; the whole text is only known piece by piece, so only such steps are known here as can be done so. The
others are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from modelfiles.errors import ModelFileError

WORD_STEPS: Final = ("Replace", "Strip", "Metaspace", "ByteFallback", "Fuse")


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Every ``pattern``, from the left, becomes ``content``."""

    pattern: str
    content: str


@dataclass(frozen=True, slots=True)
class StripText:
    """At most ``start`` and ``stop`` of the character ``content`` are cut off the start and the end."""

    content: str
    start: int
    stop: int


TextStep = ReplaceText | StripText

WordStep = Callable[[str, bool], str]
"""A token, and whether it is the first of the text, to what is made of it."""


def flattened(decoder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps of a decoder in their order, those of sequences in sequences too."""
    if decoder.get("type") == "Sequence":
        for step in decoder["decoders"]:
            yield from flattened(step)
    elif decoder:
        yield decoder


def text_step(step: dict[str, Any]) -> TextStep:
    """A step that is done to the whole text. Raises ``ModelFileError`` if it cannot be done piece by piece."""
    match step:
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)} if pattern:
            return ReplaceText(pattern, content)
        case {"type": "Strip", "content": str(content), "start": int(start), "stop": int(stop)}:
            return StripText(content, start, stop)
    raise ModelFileError(f"a tokenizer with the decoder step {named(step)} on the whole text is not supported")


def word_step(step: dict[str, Any]) -> WordStep:
    """A step that is done to each token. Raises ``ModelFileError`` if it is not known."""
    match step:
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)} if pattern:
            return lambda token, _: token.replace(pattern, content)
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(content)}:
            return _replace_regex(pattern, content)
        case {"type": "Strip", "content": str(content), "start": int(start), "stop": int(stop)}:
            return lambda token, _: stripped(token, StripText(content, start, stop))
        case {"type": "Metaspace"}:
            return _metaspace(step)
    raise ModelFileError(f"a tokenizer with the decoder step {named(step)} is not supported")


def stripped(text: str, step: StripText) -> str:
    """A text with ``step`` done to it."""
    begin = len(text) - len(text[: step.start].lstrip(step.content)) - len(text[step.start :])
    end = len(text)
    while end > begin and len(text) - end < step.stop and text[end - 1] == step.content:
        end -= 1
    return text[begin:end]


def named(step: dict[str, Any]) -> str:
    """A step as a person knows it."""
    pattern = step.get("pattern")
    return f"{step.get('type')!r}" + (f" of {pattern}" if pattern is not None else "")


def _metaspace(step: dict[str, Any]) -> WordStep:
    mark = str(step.get("replacement", "\u2581"))
    prepended = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never") != "never"
    return lambda token, is_first: token.replace(mark, "" if is_first and prepended else " ")


def _replace_regex(pattern: str, content: str) -> WordStep:
    """The tokenizers library's own, as its regular expressions are not Python's."""
    from tokenizers import Regex, decoders

    replace = decoders.Replace(Regex(pattern), content)
    return lambda token, _: str(replace.decode([token]))
