"""The base of all schemas: strict types, and errors that name the field by its JSON path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from gateway.http.json_body import format_path
from svclib.errors import InvalidRequest

TAG: Final = "~"
"""Prefix of the tag of a union branch, which is not part of a field's path."""

_SENTENCES: Final = {
    "missing": "is missing",
    "extra_forbidden": "is not a field of this object",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} items",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
}
"""Messages for pydantic's error types, in JSON's terms."""

SchemaT = TypeVar("SchemaT", bound="Schema")


class Schema(BaseModel):
    """A JSON object. Types are strict: strings, fractions and booleans are not converted to numbers or integers.

    null is the same as absent for every field that has a default. Fields that the schema does not have are kept for
    ``unknown``.
    """

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, allow_inf_nan=False, protected_namespaces=())

    def unknown(self, prefix: str = "") -> Iterator[str]:
        """Paths of the given fields that the schema does not have."""
        for name, value in (self.__pydantic_extra__ or {}).items():
            if value is not None:
                yield f"{prefix}{name}"


def validate(
    schema: type[SchemaT],
    document: Mapping[str, Any],
    whole: frozenset[str] = frozenset(),
    placed: frozenset[str] = frozenset(),
) -> SchemaT:
    """Validate a document. Raises ``InvalidRequest`` for the first fault.

    For faults inside the fields ``whole`` and ``placed``, ``param`` is the field itself; for ``placed`` the message has
    the path. The message never repeats the input.
    """
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
    path = tuple(part for part in faults[0]["loc"] if not (isinstance(part, str) and part.startswith(TAG)))
    is_entry = len(path) > 1 and path[0] in whole
    param = format_path(path[:1] if is_entry or path[0] in placed else path)
    subject = f"an entry of {param}" if is_entry else format_path(path)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    raise InvalidRequest(f"{subject} {_sentence(faults[0])}{more}", param=param)


def _sentence(fault: ErrorDetails) -> str:
    template = _SENTENCES.get(fault["type"])
    return fault["msg"] if template is None else template.format(**fault.get("ctx", {}))
