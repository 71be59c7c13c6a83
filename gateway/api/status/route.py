"""What operators ask: alive, ready, metrics, version."""

from __future__ import annotations

from importlib.metadata import version

import orjson
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gateway.api.methods import READ
from gateway.gateway import Gateway


def status_routes(gateway: Gateway) -> APIRouter:
    """The routes outside of ``/v1``."""
    router = APIRouter()

    @router.api_route("/health", methods=READ)
    async def health() -> Response:
        """The process lives and answers; it says nothing of the services behind it."""
        return _json({"status": "alive"})

    @router.api_route("/ready", methods=READ)
    async def ready() -> Response:
        """A request would be answered now, if not as well as the model could: ``warnings``.

        Otherwise 503 with the names of those who are not ready.
        """
        model = gateway.check_ready()
        return _json({"status": "ready", "peers": gateway.peers(), "warnings": model.warnings})

    @router.api_route("/metrics", methods=READ)
    async def metrics() -> Response:
        await gateway.loads.refresh()
        return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.api_route("/version", methods=READ)
    async def tell_version() -> Response:
        return _json({"version": version("pellucid")})

    return router


def _json(value: dict[str, object]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
