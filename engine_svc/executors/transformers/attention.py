"""The attention function that models of transformers call in place of their own, over our paged cache.

Models call it once for each layer, always in the same order, so the number of the call is the number of the layer. What
the layers ask for was read when the model was loaded (``survey.py``), so nothing has to be looked at here.
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
"""Its name as an ``attn_implementation``. There is no mask function of this name, so models make no masks."""


@dataclass(slots=True)
class _Calls:
    step: AttentionStep
    count: int = 0


_calls: ContextVar[_Calls] = ContextVar("calls")


@contextmanager
def attending(step: AttentionStep) -> Iterator[None]:
    """Within, a model that computes a step attends by ``step``."""
    token = _calls.set(_Calls(step))
    try:
        yield
    finally:
        _calls.reset(token)


def _attend(
    _layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_mask: Any, **_options: Any
) -> tuple[Tensor, None]:
    """``query`` [1, heads, tokens, head_dim], ``key`` and ``value`` [1, kv_heads, tokens, head_dim]
    -> [1, tokens, heads, head_dim], and no weights"""
    calls = _calls.get()
    calls.count += 1
    attended = calls.step.attend(calls.count - 1, *map(_by_token, (query, key, value)))
    return attended[None], None


def _by_token(x: Tensor) -> Tensor:
    """[1, heads, tokens, head_dim] -> [tokens, heads, head_dim], of which the last two lie together

    By way of [tokens, heads * head_dim], because ``contiguous`` leaves odd strides to dimensions of size 1.
    """
    _, heads, tokens, head_dim = x.shape
    return x[0].transpose(0, 1).reshape(tokens, heads * head_dim).view(tokens, heads, head_dim)


AttentionInterface.register(PAGED, _attend)
