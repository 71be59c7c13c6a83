"""``POST /v1/chat/completions``."""

from __future__ import annotations

from starlette.routing import BaseRoute

from gateway.api.chat.read import read_chat
from gateway.api.exchange import generation_route
from gateway.gateway import Gateway


def chat_routes(gateway: Gateway) -> list[BaseRoute]:
    """The routes of chat completions."""
    return [generation_route("/v1/chat/completions", gateway, read_chat)]
