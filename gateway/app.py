"""The HTTP side of a gateway as an ASGI application."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import Problem
from gateway.gateway import Gateway
from gateway.middleware import BodyLimit, ErrorBodies, RequestContext
from gateway.routes.chat import chat_routes
from gateway.routes.models import model_routes
from gateway.routes.status import status_routes


def build_app(gateway: Gateway) -> FastAPI:
    """All routes of a gateway, and what happens to every request on its way to them, from the outside in."""
    app = FastAPI(
        title="Pellucid",
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
        middleware=[
            Middleware(RequestContext, metrics=gateway.metrics),
            Middleware(ErrorBodies),
            Middleware(BodyLimit, max_bytes=gateway.settings.max_body_bytes),
        ],
        exception_handlers={HTTPException: _http_error},
    )
    for router in (chat_routes(gateway), model_routes(gateway), status_routes(gateway)):
        app.include_router(router)
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    """What routing itself refuses: an unknown path, a method that is not allowed."""
    assert isinstance(error, HTTPException)
    problem = Problem.of_status(error.status_code)
    request.state.record.error_code = problem.code or problem.type
    return Response(problem.body, problem.status, error.headers, media_type="application/json")
