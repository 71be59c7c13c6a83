from __future__ import annotations

import json

import pytest

from gateway.http.errors import Problem
from gateway.policy.limits import MAX_MESSAGE_CHARS, MAX_PARAM_CHARS
from svclib.errors import TABLE, InternalError, InvalidRequest, ServiceError, Unavailable


def make(cls: type[ServiceError]) -> ServiceError:
    return InternalError() if cls is InternalError else cls("why", param="where", retry_after=2.5)


@pytest.mark.parametrize("cls", TABLE)
def test_every_service_error_has_an_api_error_body(cls: type[ServiceError]) -> None:
    error, row = make(cls), TABLE[cls]
    problem = Problem.of(error)
    assert problem.status == row.http
    assert json.loads(problem.body) == {
        "error": {"message": error.message, "type": row.type, "param": error.param, "code": row.code}
    }


def test_headers() -> None:
    headers = dict(Problem.of(Unavailable("later", retry_after=0.2)).headers)
    assert headers[b"retry-after"] == b"1"
    assert headers[b"content-type"] == b"application/json"
    assert dict(Problem.of(Unavailable("later", retry_after=2.5)).headers)[b"retry-after"] == b"3"
    assert b"retry-after" not in dict(Problem.of(InvalidRequest("no")).headers)


@pytest.mark.parametrize(
    ("status", "code"), [(404, "not_found"), (405, "method_not_allowed"), (431, "request_header_fields_too_large")]
)
def test_errors_of_http_itself(status: int, code: str) -> None:
    problem = Problem.of_status(status)
    assert (problem.status, problem.code, problem.type) == (status, code, "invalid_request_error")


def test_server_errors_are_hidden() -> None:
    assert Problem.of_status(500).message == "internal error"


@pytest.mark.parametrize("character", ["x", "ü", "😀", "\ud800", '"', "\x01"])
def test_error_bodies_are_bounded(character: str) -> None:
    problem = Problem.of(InvalidRequest(character * 100_000, param=character * 100_000))
    assert len(problem.body) < 4096
    error = json.loads(problem.body)["error"]
    assert len(error["message"]) <= MAX_MESSAGE_CHARS
    assert len(error["param"]) <= MAX_PARAM_CHARS
    assert int(dict(problem.headers)[b"content-length"]) == len(problem.body)
