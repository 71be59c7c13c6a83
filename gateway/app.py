"""The gateway as an ASGI application: routes and middleware."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

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


def build_app(gateway: Gateway, endpoints: Iterable[Endpoint] = ENDPOINTS) -> ASGIApp:
    """All routes of a gateway, in its middleware."""
    routes = [route for endpoint in endpoints for route in endpoint(gateway)]
    limited = BodyLimit(Routes(routes), gateway.settings.max_body_bytes)
    return RequestContext(ErrorBodies(limited), gateway.metrics)


class Routes:
    """Routes a request to its endpoint."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._router = Router(routes, redirect_slashes=False)
        self._listed = _listed(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # With an application in the scope, the router raises its errors instead of answering them.
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            problem = _routing_problem(scope, error, self._listed)
            scope["state"]["record"].error_code = problem.code or problem.type
            answer = Response(problem.body, problem.status, error.headers, media_type="application/json")
            await answer(scope, receive, send)


def _routing_problem(scope: Scope, error: HTTPException, routes: Sequence[str]) -> Problem:
    """An error that names the requested route, and the available ones."""
    asked = f"{scope['method']} {_shown(scope['path'])}"
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Problem.of(NotFound(f"no route for {asked}; routes: {', '.join(routes)}"))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = Headers(error.headers).get("allow", "")
        message = f"{asked} is not allowed; allowed: {allowed}"
        return Problem(HTTPStatus.METHOD_NOT_ALLOWED, message, code="method_not_allowed")
    return Problem.of_status(error.status_code)


def _shown(path: str) -> str:
    return path if len(path) <= MAX_PATH_CHARS else f"{path[:MAX_PATH_CHARS]}…"


def _listed(routes: Iterable[BaseRoute]) -> list[str]:
    """Entries such as ``GET /v1/models``. HEAD is left out: it is allowed wherever GET is."""
    return sorted(
        f"{method} {route.path.replace(':path}', '}')}"
        for route in routes
        if isinstance(route, Route) and not route.path.endswith("/")
        for method in sorted((route.methods or set()) - {"HEAD"})
    )
