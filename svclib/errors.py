"""The errors a service may show to its callers.

    ServiceError
    ├── InvalidRequest         the request is at fault; ``param`` names the field
    │   ├── ContextLengthExceeded
    │   └── Unsupported        a known thing that this deployment does not do
    ├── Unauthenticated
    ├── PermissionDenied
    ├── NotFound
    │   └── ModelNotFound
    ├── RateLimited            the caller's own limit
    ├── RequestTimeout         the request itself came too slowly
    ├── PayloadTooLarge
    ├── UnsupportedMediaType
    ├── Overloaded             everybody's limit; another replica may have room
    ├── Unavailable            nobody is there to serve it
    │   └── PeerLost           a peer went away while it served the request
    ├── DeadlineExceeded
    └── InternalError          anything else; its message is always the same

Only these keep their message on the way to a caller. Anything else is logged and becomes ``InternalError``.
``TABLE`` is the one place that says how each class looks over gRPC, over HTTP and in an OpenAI error body.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class GrpcCode(IntEnum):
    """The canonical gRPC status numbers that are in use here (google.rpc.Code)."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class ServiceError(Exception):
    """An error whose message is meant for the caller.

    ``param`` is the request field at fault as the client spelled it, or None; ``retry_after`` is in seconds.
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
    """Something nobody foresaw. The caller learns only that; the log, by request id, has the rest."""

    def __init__(self) -> None:
        super().__init__("internal error")


@dataclass(frozen=True, slots=True)
class Row:
    """How one error class looks on each wire."""

    name: str
    """Name on our own wire (``Failure.code``)."""
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
    """The error that a peer sent by its name; a name nobody knows is an internal error."""
    cls = _BY_NAME.get(name, InternalError)
    if cls is InternalError:
        return InternalError()
    return cls(message, param=param, retry_after=retry_after)


def public(error: BaseException) -> ServiceError:
    """What a caller may see of any exception: itself if it is a ``ServiceError``, else an internal error."""
    return error if isinstance(error, ServiceError) else InternalError()
