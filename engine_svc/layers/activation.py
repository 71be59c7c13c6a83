"""Activation functions of gated MLPs, and soft-capping of attention scores and logits.

torch's fused activations round differently in their vectorised loop and in the scalar loop for the tail of a tensor, or
of a thread's share of it. So the same input may give different bits in different batches. The batch-invariant versions
use only operations that torch computes in one way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import pi, sqrt
from typing import Final

import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}
"""By name in config.json."""


def silu(x: Tensor) -> Tensor:
    """``x / (1 + exp(-x))``, in float32."""
    wide = x.float()
    return (wide / (1.0 + (-wide).exp())).to(x.dtype)


def gelu_pytorch_tanh(x: Tensor) -> Tensor:
    """``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`` (Hendrycks, Gimpel 2016), in float32."""
    wide = x.float()
    inner = sqrt(2.0 / pi) * (wide + 0.044715 * (wide * wide * wide))
    return (0.5 * wide * (1.0 + inner.tanh())).to(x.dtype)


BATCH_INVARIANT_ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "silu": silu,
    "gelu_pytorch_tanh": gelu_pytorch_tanh,
}
"""Batch-invariant versions of ``ACTIVATIONS``, by the same names."""


def softcap(x: Tensor, cap: float | None) -> Tensor:
    """``cap * tanh(x / cap)``, between -cap and cap (Gemma 2); ``x`` itself if ``cap`` is None."""
    return x if cap is None else (x / cap).tanh() * cap
