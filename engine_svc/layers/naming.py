"""How checkpoints name what a layer keeps together."""

from __future__ import annotations


def beside(path: str, name: str) -> str:
    """What is called ``name`` and stands next to ``path``: ``beside("a.b.c", "d")`` is ``a.b.d``."""
    parent, dot, _ = path.rpartition(".")
    return f"{parent}{dot}{name}"
