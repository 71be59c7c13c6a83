"""What all schemas share: strict types, and errors that name the field as the client spelled it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from gateway.http.json_body import spell
from svclib.errors import InvalidRequest

TAG: Final = "~"
"""Begins the name of a branch of a union, which is no part of a field's name."""

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
"""pydantic's types of errors, said in the words of JSON."""

SchemaT = TypeVar("SchemaT", bound="Schema")


class Schema(BaseModel):
    """A JSON object. Types are exact: no number in a string, no fraction for an integer, no truth value for a number.

    null is the same as absent for every field that has a default. Fields that the schema does not name are kept aside
    for ``unknown``.
    """

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, allow_inf_nan=False, protected_namespaces=())

    def unknown(self, prefix: str = "") -> Iterator[str]:
        """Names of the fields that were given and that the schema does not have."""
        for name, value in (self.__pydantic_extra__ or {}).items():
            if value is not None:
                yield f"{prefix}{name}"


def validate(
    schema: type[SchemaT],
    document: Mapping[str, Any],
    whole: frozenset[str] = frozenset(),
    placed: frozenset[str] = frozenset(),
) -> SchemaT:
    """Read a document. Raises ``InvalidRequest`` for the first fault.

    In a field among ``whole`` or ``placed`` it names the field; among ``placed`` its message says where. Inputs are
    never repeated in the message.
    """
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
    path = tuple(part for part in faults[0]["loc"] if not (isinstance(part, str) and part.startswith(TAG)))
    is_entry = len(path) > 1 and path[0] in whole
    param = spell(path[:1] if is_entry or path[0] in placed else path)
    subject = f"a part of {param}" if is_entry else spell(path)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    raise InvalidRequest(f"{subject} {_sentence(faults[0])}{more}", param=param)


def _sentence(fault: ErrorDetails) -> str:
    template = _SENTENCES.get(fault["type"])
    return fault["msg"] if template is None else template.format(**fault.get("ctx", {}))
