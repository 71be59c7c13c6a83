"""Chat requests as tests look at them."""

from __future__ import annotations

from gateway.api.chat.request import ChatRequest
from gateway.generation.request import Conversation


def conversation(request: ChatRequest) -> Conversation:
    """What the chat template will render."""
    assert isinstance(request.generation.prompt, Conversation)
    return request.generation.prompt
