"""Makes a decoder batch-invariant: the result for a token does not depend on the batch, bit for bit.

Most operations of a decoder compute each row, or each element, in a fixed way. The exceptions are replaced: matrix
products, and activations, which round differently in the vectorised loop and in the scalar loop for the tail of a
tensor, or of a thread's share of it.
"""

from __future__ import annotations

from torch import nn

from engine_svc.layers.activation import BATCH_INVARIANT_ACTIVATIONS
from engine_svc.layers.fixed_tile import FixedTileProduct
from engine_svc.layers.linear import Embedding, Linear
from engine_svc.models.decoder import Decoder, GatedMLP
from engine_svc.weights.errors import ModelLoadError


def make_batch_invariant(model: Decoder) -> None:
    """Modify a loaded model in place. Raises ``ModelLoadError`` if torch on this machine cannot do it."""
    checked: set[tuple[int, ...]] = set()
    for module in model.modules():
        if isinstance(module, Linear | Embedding):
            _replace_product(module, checked)
        elif isinstance(module, GatedMLP):
            module.activation = BATCH_INVARIANT_ACTIVATIONS[model.config.activation]


def _replace_product(layer: Linear | Embedding, checked: set[tuple[int, ...]]) -> None:
    bias = layer.bias if isinstance(layer, Linear) else None
    product = FixedTileProduct(layer.weight.data, bias)
    kind = (product.outputs, product.inputs, bias is not None)
    if kind not in checked and not product.is_batch_invariant():
        raise ModelLoadError(
            "deterministic mode is not supported on this machine: products with "
            f"{product.outputs} x {product.inputs} matrices of {layer.weight.dtype} are not batch-invariant"
        )
    checked.add(kind)
    layer.weight = nn.Parameter(product.weight, requires_grad=False)
    layer.product = product
