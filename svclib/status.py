"""Errors on the gRPC wire: a ``ServiceError`` becomes a ``Failure`` message or a status, and back.

A unary call carries the ``Failure`` in trailing metadata beside the gRPC status: any gRPC client sees an ordinary
error, and ours also gets the class, the parameter and the retry hint.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NoReturn, TypeVar, cast

import grpc
import structlog

from protos.v1 import common_pb2
from svclib.errors import DeadlineExceeded, InternalError, ServiceError, Unavailable, from_wire, public, row_for

ServicerT = TypeVar("ServicerT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

log = structlog.get_logger(__name__)

_METADATA_KEY: Final = "pellucid-failure-bin"
_STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}


def to_failure(error: ServiceError) -> common_pb2.Failure:
    """The message that carries an error to a peer."""
    return common_pb2.Failure(
        code=row_for(error).name, message=error.message, param=error.param or "", retry_after_seconds=error.retry_after
    )


def from_failure(failure: common_pb2.Failure) -> ServiceError:
    """The error that a peer sent."""
    retry_after = failure.retry_after_seconds if failure.HasField("retry_after_seconds") else None
    return from_wire(failure.code, failure.message, param=failure.param or None, retry_after=retry_after)


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: ServiceError) -> NoReturn:
    """End a unary call with an error."""
    await context.abort(
        _STATUS[row_for(error).grpc],
        error.message,
        trailing_metadata=((_METADATA_KEY, to_failure(error).SerializeToString()),),
    )
    raise AssertionError("abort returned")


def unary(
    method: Callable[[ServicerT, RequestT, grpc.aio.ServicerContext[Any, Any]], Awaitable[ResponseT]],
) -> Callable[[ServicerT, RequestT, grpc.aio.ServicerContext[Any, Any]], Awaitable[ResponseT]]:
    """Decorate a servicer's unary method: a ``ServiceError`` keeps its message; any other exception is logged and
    answered as an internal error."""

    @functools.wraps(method)
    async def guarded(self: ServicerT, request: RequestT, context: grpc.aio.ServicerContext[Any, Any]) -> ResponseT:
        structlog.contextvars.bind_contextvars(request_id=getattr(request, "request_id", ""))
        try:
            return await method(self, request, context)
        except ServiceError as error:
            await abort(context, error)
        except Exception as error:
            log.exception("call failed")
            await abort(context, public(error))

    return guarded


def from_rpc_error(error: grpc.aio.AioRpcError, *, peer: str) -> ServiceError:
    """The error of a failed call to ``peer``: the one it sent, or one about the connection."""
    trailing = dict(cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ()))
    if isinstance(failure := trailing.get(_METADATA_KEY), bytes):
        return from_failure(common_pb2.Failure.FromString(failure))
    if error.code() == grpc.StatusCode.UNAVAILABLE:
        return Unavailable(f"cannot connect to the {peer}", retry_after=1.0)
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(f"the {peer} did not answer in time")
    return InternalError()
