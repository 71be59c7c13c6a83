"""``GET /v1/models`` and ``GET /v1/models/{id}``: what is served here."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Response

from gateway.api.methods import READ
from gateway.gateway import Gateway
from gateway.generation.model import check_name


def model_routes(gateway: Gateway) -> APIRouter:
    """The routes that describe models."""
    router = APIRouter()

    # The second is what clients ask that put a slash behind every path.
    @router.api_route("/v1/models", methods=READ)
    @router.api_route("/v1/models/", methods=READ)
    async def list_models() -> Response:
        models = [_wire_model(gateway, name) for name in gateway.settings.model_names]
        return _json({"object": "list", "data": models})

    # Names may have slashes in them.
    @router.api_route("/v1/models/{name:path}", methods=READ)
    async def retrieve_model(name: str) -> Response:
        check_name(name, gateway.settings.model_names, param=None)
        return _json(_wire_model(gateway, name))

    return router


def _wire_model(gateway: Gateway, name: str) -> dict[str, Any]:
    """``max_model_len`` is null until an engine has told it."""
    engine = gateway.pipeline.engines.info
    return {
        "id": name,
        "object": "model",
        "created": gateway.created,
        "owned_by": "pellucid",
        "root": gateway.settings.served_model_name,
        "parent": None,
        "max_model_len": None if engine is None else engine.max_context_length,
    }


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
