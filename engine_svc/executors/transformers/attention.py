"""The attention function that transformers models call in place of their own, over our paged KV cache.

Models call it once for each layer, always in the same order, so the number of the call is the index of the layer. The
arguments of the layers were checked when the model was loaded (``survey.py``), so they are ignored here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor, nn
from transformers import AttentionInterface

from engine_svc.attention.interface import AttentionStep

PAGED: Final = "pellucid_paged"
"""Name as an ``attn_implementation``. There is no mask function of this name, so models build no masks."""


@dataclass(slots=True)
class _Calls:
    step: AttentionStep
    count: int = 0


_calls: ContextVar[_Calls] = ContextVar("calls")


@contextmanager
def attending(step: AttentionStep) -> Iterator[None]:
    """Context in which models use ``step`` for attention."""
    token = _calls.set(_Calls(step))
    try:
        yield
    finally:
        _calls.reset(token)


def _attend(
    _layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_mask: Any, **_options: Any
) -> tuple[Tensor, None]:
    """``query`` [1, heads, tokens, head_dim], ``key`` and ``value`` [1, kv_heads, tokens, head_dim]
    -> [1, tokens, heads, head_dim], and None for the attention weights"""
    calls = _calls.get()
    calls.count += 1
    attended = calls.step.attend(calls.count - 1, *map(_by_token, (query, key, value)))
    return attended[None], None


def _by_token(x: Tensor) -> Tensor:
    """[1, heads, tokens, head_dim] -> [tokens, heads, head_dim], contiguous in the last two dimensions

    Via [tokens, heads * head_dim], because ``contiguous`` keeps arbitrary strides of dimensions of size 1.
    """
    _, heads, tokens, head_dim = x.shape
    return x[0].transpose(0, 1).reshape(tokens, heads * head_dim).view(tokens, heads, head_dim)


AttentionInterface.register(PAGED, _attend)
