"""Calls that arrive before a service has started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from svclib.errors import Unavailable
from svclib.status import abort


class StartupGate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Answers UNAVAILABLE until ``open`` is set, except to methods that begin with one of ``always_open``."""

    def __init__(self, always_open: tuple[str, ...]) -> None:
        self.open = False
        self._always_open = always_open

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        handler = await continuation(details)
        if self.open or details.method.startswith(self._always_open) or handler is None:
            return handler
        return _refusing(handler)


def _refusing(handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
    async def refuse(_request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await abort(context, Unavailable("the service is starting", retry_after=1.0))

    make = grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
    return make(refuse, handler.request_deserializer, handler.response_serializer)
