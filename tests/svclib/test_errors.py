from __future__ import annotations

import pytest

from svclib import errors
from svclib.errors import TABLE, GrpcCode, InternalError, ServiceError, from_wire, public, row_for
from svclib.status import from_failure, to_failure


def all_errors() -> list[type[ServiceError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ServiceError)]
    return [cls for cls in found if cls is not ServiceError]


def make(cls: type[ServiceError]) -> ServiceError:
    return InternalError() if cls is InternalError else cls("why", param="field", retry_after=1.5)


def test_every_class_has_a_row_and_names_are_unique() -> None:
    assert set(all_errors()) == set(TABLE)
    assert len({row.name for row in TABLE.values()}) == len(TABLE)


@pytest.mark.parametrize("cls", all_errors())
def test_an_error_survives_the_wire(cls: type[ServiceError]) -> None:
    error = make(cls)
    again = from_failure(to_failure(error))
    assert type(again) is cls
    assert (again.message, again.param, again.retry_after) == (error.message, error.param, error.retry_after)


@pytest.mark.parametrize("cls", all_errors())
def test_status_families_agree(cls: type[ServiceError]) -> None:
    row = TABLE[cls]
    client_codes = {
        GrpcCode.INVALID_ARGUMENT,
        GrpcCode.NOT_FOUND,
        GrpcCode.PERMISSION_DENIED,
        GrpcCode.UNAUTHENTICATED,
    }
    if row.grpc in client_codes:
        assert 400 <= row.http < 500
    if row.http >= 500:
        assert row.type == "server_error"


def test_names_in_the_docstring_are_the_classes() -> None:
    assert errors.__doc__ is not None
    tree = errors.__doc__.split("Only these")[0]
    for cls in all_errors():
        assert f" {cls.__name__}" in tree


def test_unexpected_exceptions_become_internal_errors() -> None:
    error = public(ValueError("the secret of the house"))
    assert type(error) is InternalError
    assert error.message == "internal error"
    assert public(error) is error


def test_an_unknown_name_is_an_internal_error() -> None:
    error = from_wire("made_up", "from the future", param=None, retry_after=None)
    assert type(error) is InternalError
    assert row_for(error).http == 500
