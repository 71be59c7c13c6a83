"""Routes for operators: alive, ready, metrics, version."""

from __future__ import annotations

from importlib.metadata import version

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.gateway import Gateway


def status_routes(gateway: Gateway) -> list[BaseRoute]:
    """The routes outside ``/v1``."""

    async def health(_request: Request) -> Response:
        """Liveness: the process answers. The services behind it do not matter."""
        return _json({"status": "alive"})

    async def ready(_request: Request) -> Response:
        """Readiness: a request would be served now, with the limitations in ``warnings``.

        Otherwise 503 with the names of the services that are not ready.
        """
        warnings = gateway.check_ready()
        return _json({"status": "ready", "peers": gateway.peers(), "warnings": warnings})

    async def metrics(_request: Request) -> Response:
        await gateway.loads.refresh()
        return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def get_version(_request: Request) -> Response:
        return _json({"version": version("pellucid")})

    return [
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
        Route("/version", get_version),
    ]


def _json(value: dict[str, object]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
