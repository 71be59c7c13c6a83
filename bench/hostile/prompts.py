"""Prompts that take the tokenizer a long time."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.hostile.kind import Kind, Target

_WORDS: Final = "Could you explain how the second law of thermodynamics applies to living organisms? "


async def ask(target: Target, content: str) -> str:
    return await target.answer(target.chat(content, max_tokens=1))


def _kind(name: str, what: str, text: str, length: int, clients: int) -> Kind:
    content = (text * (length // len(text) + 1))[:length]
    return Kind(name, what, partial(ask, content=content), clients, settings={})


KINDS: Final = (
    _kind("prose-400k", "400 KB of prose", _WORDS, 400_000, 4),
    _kind("prose-4m", "4 MB of prose", _WORDS, 4_000_000, 1),
    _kind("prose-4m-at-once", "4 MB of prose, four at once", _WORDS, 4_000_000, 4),
    _kind("angle-brackets", "400 KB of characters that could begin a control token", "<", 400_000, 4),
    _kind("no-tokens", "1 MB of characters that become no tokens", "\x06", 1_000_000, 2),
)
