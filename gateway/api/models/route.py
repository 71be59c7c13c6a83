"""``GET /v1/models`` and ``GET /v1/models/{id}``: the served models."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.gateway import Gateway


def model_routes(gateway: Gateway) -> list[BaseRoute]:
    """The routes that list and describe models."""

    async def list_models(_request: Request) -> Response:
        models = [_wire_model(gateway, name) for name in gateway.registry.names]
        return _json({"object": "list", "data": models})

    async def retrieve_model(request: Request) -> Response:
        return _json(_wire_model(gateway, request.path_params["name"]))

    return [
        Route("/v1/models", list_models),
        # For clients that append a slash to every path.
        Route("/v1/models/", list_models),
        # Names may contain slashes.
        Route("/v1/models/{name:path}", retrieve_model),
    ]


def _wire_model(gateway: Gateway, name: str) -> dict[str, Any]:
    """``max_model_len`` is null until an engine has reported it. Raises ``ModelNotFound``."""
    deployment = gateway.registry.deployment(name, param=None)
    return {
        "id": name,
        "object": "model",
        "created": gateway.created,
        "owned_by": "pellucid",
        "root": gateway.settings.served_model_name,
        "parent": None,
        "max_model_len": deployment.max_context_length,
    }


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
