"""What gates an MLP.

The fused forms of torch round differently in vectors than in what is left over at the end of a tensor, or of a thread's
share of it, so that the same number may give another bit in another batch. The batch-invariant forms are made of
operations of which torch has one form only.
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
"""By the names that config.json has for them."""


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
"""The same by the same names, each number computed as if it were alone."""
