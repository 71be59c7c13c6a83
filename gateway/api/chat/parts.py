"""The content of a message: a string, or a list of parts.

Besides ``text`` there are parts of earlier answers that clients send back: refusals, and reasoning in the format of
Anthropic and Mistral.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Discriminator, Field, Tag

from gateway.api.schemas.base import TAG, Schema
from gateway.policy.limits import MAX_PARTS
from svclib.errors import InvalidRequest, Unsupported

_TEXT: Final = ("text", "input_text", "output_text")
"""The latter two are from the Responses API."""
_OF_AN_ANSWER: Final = ("refusal", "thinking", "reasoning")
_MEDIA: Final = frozenset(
    {"image_url", "input_image", "image", "input_audio", "audio_url", "audio", "video_url", "video", "file"}
)


class Part(Schema):
    type: str
    text: str | None = None
    refusal: str | None = None
    thinking: Any = None
    reasoning: str | None = None

    # Cache control of other servers, and metadata of the parts of an answer.
    cache_control: Any = None
    prompt_cache_breakpoint: Any = None
    annotations: Any = None
    signature: Any = None
    index: Any = None


Text: TypeAlias = str | tuple[str, ...] | None
"""A message's content: a string, or the texts of its parts; None: no content."""


def _kind(content: Any) -> str | None:
    if isinstance(content, list):
        return f"{TAG}parts"
    return f"{TAG}text" if isinstance(content, str) else None


Content = Annotated[
    Annotated[str, Tag(f"{TAG}text")]
    | Annotated[list[Part], Field(max_length=MAX_PARTS, fail_fast=True), Tag(f"{TAG}parts")],
    Discriminator(
        _kind,
        custom_error_type="content_type",
        custom_error_message="must be a string or a list of parts",
    ),
]


@dataclass(frozen=True, slots=True)
class ReadContent:
    """The text of a content, and the reasoning among its parts."""

    text: Text
    reasoning: str | None = None


def read_content(content: str | list[Part] | None, role: str, param: str) -> ReadContent:
    """``[]`` is an empty text. Raises ``InvalidRequest`` and ``Unsupported`` for parts that ``role`` cannot have."""
    if not isinstance(content, list):
        return ReadContent(content)
    texts: list[str] = []
    thoughts: list[str] = []
    for number, part in enumerate(content):
        place = f"{param}[{number}]"
        _check_type(part, role, place)
        if part.type in ("thinking", "reasoning"):
            thoughts.extend(_thoughts(part, place))
        else:
            texts.append(_text(part, place))
    return ReadContent(tuple(texts) or "", "".join(thoughts) if thoughts else None)


def with_refusal(content: Text, refusal: str | None) -> Text:
    """The content with the refusal appended, unless it is already part of it."""
    texts = (content,) if isinstance(content, str) else content or ()
    if not refusal or refusal in texts:
        return content
    return (*texts, refusal) if any(texts) else refusal


def _check_type(part: Part, role: str, param: str) -> None:
    if part.type in _MEDIA:
        raise Unsupported(f"{param} is not supported: this model accepts only text", param=param)
    if part.type not in (*_TEXT, *_OF_AN_ANSWER):
        raise InvalidRequest(f"{param}.type must be `text`", param=f"{param}.type")
    if part.type in _OF_AN_ANSWER and role != "assistant":
        raise InvalidRequest(f"{param}.type `{part.type}` is only for the role assistant", param=f"{param}.type")


def _text(part: Part, param: str) -> str:
    name, text = ("refusal", part.refusal) if part.type == "refusal" else ("text", part.text)
    if text is None:
        raise InvalidRequest(f"{param}.{name} is missing", param=f"{param}.{name}")
    return text


def _thoughts(part: Part, param: str) -> Iterator[str]:
    """The texts of a thinking part: a string, or (Mistral) a list of text parts."""
    value = part.thinking if part.type == "thinking" else part.reasoning
    value = part.text if value is None else value
    for each in value if isinstance(value, list) else [value]:
        match each:
            case str(text) | {"type": "text", "text": str(text)}:
                yield text
            case _:
                raise InvalidRequest(
                    f"{param}.{part.type} must be a string or a list of text parts", param=f"{param}.{part.type}"
                )
