"""The field ``response_format``.

As in OpenAI's API, ``param`` of any fault inside it is ``response_format``; the message has the path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from gateway.api.chat.tools import dump_object
from gateway.api.schemas.base import Schema
from gateway.api.schemas.json_schema import check_strict
from gateway.api.schemas.schema_language import check_schema
from gateway.generation import request as neutral
from gateway.policy.limits import MAX_DESCRIPTION_CHARS, MAX_SCHEMA_BYTES
from svclib.errors import InvalidRequest, Unsupported

PARAM: Final = "response_format"


class JsonSchema(Schema):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(Schema):
    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None

    def unknown(self, prefix: str = "") -> Iterator[str]:
        yield from super().unknown(prefix)
        if self.json_schema is not None:
            yield from self.json_schema.unknown(f"{prefix}json_schema.")


def read_response_format(fields: ResponseFormat | None) -> neutral.JsonFormat | None:
    """None: any text is allowed. Raises ``InvalidRequest`` and ``Unsupported``."""
    if fields is None:
        return None
    _check_shape(fields)
    match fields.type:
        case "text":
            return None
        case "json_object":
            return neutral.JsonFormat()
        case "structural_tag":
            raise Unsupported("response_format.type must be `text`, `json_object` or `json_schema`", param=PARAM)
    if fields.json_schema is None:
        raise InvalidRequest("response_format.json_schema is missing", param=PARAM)
    return neutral.JsonFormat(_read_schema(fields.json_schema))


def _check_shape(fields: ResponseFormat) -> None:
    """A schema in the wrong place is an error, not ignored."""
    if (fields.__pydantic_extra__ or {}).get("schema") is not None:
        raise InvalidRequest("response_format.schema must be response_format.json_schema.schema", param=PARAM)
    if fields.json_schema is not None and fields.type != "json_schema":
        raise InvalidRequest("response_format.json_schema requires response_format.type `json_schema`", param=PARAM)


def _read_schema(fields: JsonSchema) -> str:
    text, place = dump_object(fields.schema_, PARAM, MAX_SCHEMA_BYTES), "response_format.json_schema.schema"
    check_schema(fields.schema_, param=PARAM, place=place)
    if fields.strict:
        check_strict(fields.schema_, param=PARAM, place=place)
    return text
