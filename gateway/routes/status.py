"""What operators ask: alive, ready, metrics, version."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

import orjson
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gateway.gateway import Gateway

_PROBED: Final = ["GET", "HEAD"]
"""Load balancers ask with HEAD, too."""


def status_routes(gateway: Gateway) -> APIRouter:
    """The routes outside of ``/v1``."""
    router = APIRouter()

    @router.api_route("/health", methods=_PROBED)
    async def health() -> Response:
        """The process lives and answers; it says nothing of the services behind it."""
        return _json({"status": "alive"})

    @router.api_route("/ready", methods=_PROBED)
    async def ready() -> Response:
        """A request would be answered now; otherwise 503 with the names of those who are not ready."""
        gateway.check_ready()
        return _json({"status": "ready", "peers": gateway.peers()})

    @router.get("/metrics")
    async def metrics() -> Response:
        await gateway.loads.refresh()
        return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/version")
    async def tell_version() -> Response:
        return _json({"version": version("pellucid")})

    return router


def _json(value: dict[str, object]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
