"""Errors that services send to their callers.

    ServiceError
    ├── InvalidRequest         the request is invalid; ``param`` names the field
    │   ├── ContextLengthExceeded
    │   └── Unsupported        a known feature that this deployment does not have
    ├── Unauthenticated
    ├── PermissionDenied
    ├── NotFound
    │   └── ModelNotFound
    ├── RateLimited            the caller exceeded its own limit
    ├── RequestTimeout         the request was sent too slowly
    ├── PayloadTooLarge
    ├── UnsupportedMediaType
    ├── Overloaded             a limit shared by all callers; another replica may have capacity
    ├── Unavailable            no replica can serve it
    │   └── PeerLost           the connection to a peer was lost during the request
    ├── DeadlineExceeded
    └── InternalError          anything else; its message is always the same

Only these reach a caller with their message. Any other exception is logged and becomes ``InternalError``. ``TABLE``
maps each class to its gRPC code, its HTTP status and its OpenAI error body.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class GrpcCode(IntEnum):
    """The gRPC status codes in use here (google.rpc.Code)."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class ServiceError(Exception):
    """An error whose message is for the caller.

    ``param`` is the invalid request field as the client spelled it, or None; ``retry_after`` is in seconds.
    """

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after


class InvalidRequest(ServiceError): ...


class ContextLengthExceeded(InvalidRequest): ...


class Unsupported(InvalidRequest): ...


class Unauthenticated(ServiceError): ...


class PermissionDenied(ServiceError): ...


class NotFound(ServiceError): ...


class ModelNotFound(NotFound): ...


class RateLimited(ServiceError): ...


class RequestTimeout(ServiceError): ...


class PayloadTooLarge(ServiceError): ...


class UnsupportedMediaType(ServiceError): ...


class Overloaded(ServiceError): ...


class Unavailable(ServiceError): ...


class PeerLost(Unavailable): ...


class DeadlineExceeded(ServiceError): ...


class InternalError(ServiceError):
    """An unexpected error. Details are only in the log, under the request id."""

    def __init__(self) -> None:
        super().__init__("internal error")


@dataclass(frozen=True, slots=True)
class Row:
    """One error class on each wire."""

    name: str
    """``Failure.code`` between the services."""
    grpc: GrpcCode
    http: int
    type: str
    """``type`` of the OpenAI error body."""
    code: str | None
    """``code`` of the OpenAI error body."""


TABLE: Final[dict[type[ServiceError], Row]] = {
    InvalidRequest: Row("invalid_request", GrpcCode.INVALID_ARGUMENT, 400, "invalid_request_error", None),
    ContextLengthExceeded: Row(
        "context_length_exceeded", GrpcCode.INVALID_ARGUMENT, 400, "invalid_request_error", "context_length_exceeded"
    ),
    Unsupported: Row("unsupported", GrpcCode.INVALID_ARGUMENT, 400, "invalid_request_error", "unsupported_parameter"),
    Unauthenticated: Row("unauthenticated", GrpcCode.UNAUTHENTICATED, 401, "authentication_error", "invalid_api_key"),
    PermissionDenied: Row("permission_denied", GrpcCode.PERMISSION_DENIED, 403, "permission_error", None),
    NotFound: Row("not_found", GrpcCode.NOT_FOUND, 404, "invalid_request_error", "not_found"),
    ModelNotFound: Row("model_not_found", GrpcCode.NOT_FOUND, 404, "invalid_request_error", "model_not_found"),
    RequestTimeout: Row("request_timeout", GrpcCode.DEADLINE_EXCEEDED, 408, "invalid_request_error", "request_timeout"),
    PayloadTooLarge: Row("payload_too_large", GrpcCode.INVALID_ARGUMENT, 413, "invalid_request_error", None),
    UnsupportedMediaType: Row("unsupported_media_type", GrpcCode.INVALID_ARGUMENT, 415, "invalid_request_error", None),
    RateLimited: Row("rate_limited", GrpcCode.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "rate_limit_exceeded"),
    InternalError: Row("internal", GrpcCode.INTERNAL, 500, "server_error", None),
    Overloaded: Row("overloaded", GrpcCode.RESOURCE_EXHAUSTED, 503, "server_error", "overloaded"),
    Unavailable: Row("unavailable", GrpcCode.UNAVAILABLE, 503, "server_error", "unavailable"),
    PeerLost: Row("peer_lost", GrpcCode.UNAVAILABLE, 503, "server_error", "peer_lost"),
    DeadlineExceeded: Row("deadline_exceeded", GrpcCode.DEADLINE_EXCEEDED, 504, "server_error", "timeout"),
}

_BY_NAME: Final = {row.name: cls for cls, row in TABLE.items()}


def row_for(error: ServiceError) -> Row:
    """The table's row for an error."""
    return TABLE[type(error)]


def from_wire(name: str, message: str, *, param: str | None, retry_after: float | None) -> ServiceError:
    """The error that a peer sent; an unknown name becomes an internal error."""
    cls = _BY_NAME.get(name, InternalError)
    if cls is InternalError:
        return InternalError()
    return cls(message, param=param, retry_after=retry_after)


def public(error: BaseException) -> ServiceError:
    """The error to send to a caller: the exception itself if it is a ``ServiceError``, else an internal error."""
    return error if isinstance(error, ServiceError) else InternalError()
