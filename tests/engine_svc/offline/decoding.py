from __future__ import annotations

from detokenizer_svc.deltas import Content
from detokenizer_svc.formatter import EngineEnd
from engine_svc.offline.text import Text


def decode(text: Text, token_ids: list[int]) -> str:
    """The text of a whole output, without special tokens."""
    formatted = text.formatter(()).feed(token_ids, EngineEnd("length"))
    return "".join(delta.text for delta in formatted.deltas if isinstance(delta, Content))
