"""The HTTP side of a gateway as an ASGI application."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.api.chat.route import chat_routes
from gateway.api.middleware import BodyLimit, ErrorBodies, RequestContext
from gateway.api.models.route import model_routes
from gateway.api.status.route import status_routes
from gateway.gateway import Gateway
from gateway.http.errors import Problem
from gateway.policy.limits import MAX_PATH_CHARS
from svclib.errors import NotFound

Endpoint: TypeAlias = Callable[[Gateway], Sequence[BaseRoute]]

ENDPOINTS: Final[tuple[Endpoint, ...]] = (chat_routes, model_routes, status_routes)
"""All endpoints; see docs/adding-an-endpoint.md."""


def build_app(gateway: Gateway, endpoints: Iterable[Endpoint] = ENDPOINTS) -> Starlette:
    """All routes of a gateway, and what happens to every request on its way to them, from the outside in."""
    routes = [route for endpoint in endpoints for route in endpoint(gateway)]
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(RequestContext, metrics=gateway.metrics),
            Middleware(ErrorBodies),
            Middleware(BodyLimit, max_bytes=gateway.settings.max_body_bytes),
        ],
        exception_handlers={HTTPException: _http_error},
    )
    app.router.redirect_slashes = False
    app.state.routes = _listed(routes)
    return app


def _routing_problem(request: Request, error: HTTPException) -> Problem:
    """What was asked for, and what can be."""
    asked = f"{request.method} {_shown(request.url.path)}"
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Problem.of(NotFound(f"no route for {asked}; routes: {', '.join(request.app.state.routes)}"))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = Headers(error.headers).get("allow", "")
        message = f"{asked} is not allowed; allowed: {allowed}"
        return Problem(HTTPStatus.METHOD_NOT_ALLOWED, message, code="method_not_allowed")
    return Problem.of_status(error.status_code)


def _shown(path: str) -> str:
    return path if len(path) <= MAX_PATH_CHARS else f"{path[:MAX_PATH_CHARS]}…"


def _listed(routes: Iterable[BaseRoute]) -> list[str]:
    """As ``GET /v1/models``; what can be asked with HEAD as well is not said twice."""
    return sorted(
        f"{method} {route.path.replace(':path}', '}')}"
        for route in routes
        if isinstance(route, Route) and not route.path.endswith("/")
        for method in sorted((route.methods or set()) - {"HEAD"})
    )


async def _http_error(request: Request, error: Exception) -> Response:
    """What routing itself refuses: an unknown path, a method that is not allowed."""
    assert isinstance(error, HTTPException)
    problem = _routing_problem(request, error)
    request.state.record.error_code = problem.code or problem.type
    return Response(problem.body, problem.status, error.headers, media_type="application/json")
