"""Errors on the gRPC wire: a ``ServiceError`` to a ``Failure`` message or a status, and back.

A unary call carries the ``Failure`` in one trailing metadata entry beside the ordinary status, so that a plain gRPC
client sees a usual error and ours gets its class, parameter and retry hint back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn, cast

import grpc

from protos.v1 import common_pb2
from svclib.errors import DeadlineExceeded, InternalError, ServiceError, Unavailable, from_wire, row_for

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


def from_rpc_error(error: grpc.aio.AioRpcError, *, peer: str) -> ServiceError:
    """The error behind a failed call to ``peer``: what the peer said, or what became of the connection."""
    trailing = dict(cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ()))
    if isinstance(failure := trailing.get(_METADATA_KEY), bytes):
        return from_failure(common_pb2.Failure.FromString(failure))
    if error.code() == grpc.StatusCode.UNAVAILABLE:
        return Unavailable(f"the {peer} is not reachable", retry_after=1.0)
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(f"the {peer} did not answer in time")
    return InternalError()
