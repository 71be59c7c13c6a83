"""Access to chat requests for tests."""

from __future__ import annotations

from gateway.api.chat.request import ChatRequest
from gateway.generation.request import Conversation


def conversation(request: ChatRequest) -> Conversation:
    """The conversation that the chat template renders."""
    assert isinstance(request.generation.prompt, Conversation)
    return request.generation.prompt
