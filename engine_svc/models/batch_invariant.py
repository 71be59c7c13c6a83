"""Makes a decoder batch-invariant: each token is computed as if it were alone, to the last bit.

Most of what a decoder does is done for each row, or each number, in one fixed way whatever is around it. The exceptions
are replaced: products with matrices, and activations, whose vectorised form rounds differently from the form that the
last few numbers of a tensor, or of a thread's share of it, get.
"""

from __future__ import annotations

from torch import nn

from engine_svc.layers.activation import BATCH_INVARIANT_ACTIVATIONS
from engine_svc.layers.fixed_tile import FixedTileProduct
from engine_svc.layers.linear import Embedding, Linear
from engine_svc.models.decoder import Decoder, GatedMLP
from engine_svc.weights.errors import ModelLoadError


def make_batch_invariant(model: Decoder) -> None:
    """Change a model with its weights in place. Raises ``ModelLoadError`` if it cannot be done here."""
    checked: set[tuple[int, ...]] = set()
    for module in model.modules():
        if isinstance(module, Linear | Embedding):
            _fix(module, checked)
        elif isinstance(module, GatedMLP):
            module.activation = BATCH_INVARIANT_ACTIVATIONS[model.config.activation]


def _fix(layer: Linear | Embedding, checked: set[tuple[int, ...]]) -> None:
    bias = layer.bias if isinstance(layer, Linear) else None
    product = FixedTileProduct(layer.weight.data, bias)
    kind = (product.outputs, product.inputs, bias is not None)
    if kind not in checked and not product.treats_rows_alike():
        raise ModelLoadError(
            f"deterministic is not possible here: products with {product.outputs} x {product.inputs} matrices of "
            f"{layer.weight.dtype} depend on the place of a row"
        )
    checked.add(kind)
    layer.weight = nn.Parameter(product.weight, requires_grad=False)
    layer.product = product
