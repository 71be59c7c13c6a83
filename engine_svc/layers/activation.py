"""What gates an MLP."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}
"""By the names that config.json has for them."""
