"""Scores and logits that are bounded without a hard edge."""

from __future__ import annotations

from torch import Tensor


def softcap(x: Tensor, cap: float | None) -> Tensor:
    """``cap * tanh(x / cap)``, between -cap and cap (Gemma 2); ``x`` itself without a cap."""
    return x if cap is None else (x / cap).tanh() * cap
