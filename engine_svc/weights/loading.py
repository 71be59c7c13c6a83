"""Loads the weights of a model from a checkpoint. Each layer maps stored tensors to its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from engine_svc.weights.checkpoint import StoredTensor
from engine_svc.weights.errors import ModelLoadError


@runtime_checkable
class Loadable(Protocol):
    """A layer with weights."""

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        """The name of each stored tensor, and the view of this layer's weights that it fills.

        ``path`` is the path of this layer in the model, such as ``model.layers.0.mlp.down_proj``.
        """


def load_weights(model: nn.Module, tensors: Iterable[StoredTensor], *, ignored: tuple[str, ...] = ()) -> None:
    """Fill all weights of ``model``; unknown tensors whose names end with one of ``ignored`` are skipped.

    Raises ``ModelLoadError`` if a tensor is missing, has the wrong shape or is unknown.
    """
    destinations = destinations_of(model)
    shapes = {name: tuple(weights.shape) for name, weights in destinations.items()}
    for tensor in match_weights(shapes, tensors, ignored=ignored):
        with torch.no_grad():
            tensor.copy_to(destinations[tensor.name])


def match_weights(
    shapes: Mapping[str, tuple[int, ...]], tensors: Iterable[StoredTensor], *, ignored: tuple[str, ...] = ()
) -> Iterator[StoredTensor]:
    """The stored tensors of a model whose weights have these names and ``shapes``.

    Raises as ``load_weights`` does; for missing tensors, after the last tensor.
    """
    missing = dict(shapes)
    for tensor in tensors:
        if tensor.name in missing:
            _check_shape(tensor, missing.pop(tensor.name))
            yield tensor
        elif not tensor.name.endswith(ignored):
            raise ModelLoadError(f"unknown tensor in the checkpoint for this architecture: {tensor.name}")
    if missing:
        raise ModelLoadError(f"the checkpoint lacks {join_names(list(missing))}")


def destinations_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model, by checkpoint name."""
    layers = ((path, module) for path, module in model.named_modules() if isinstance(module, Loadable))
    return dict(pair for path, module in layers for pair in module.stored_weights(path))


def _check_shape(tensor: StoredTensor, expected: tuple[int, ...]) -> None:
    if expected != tensor.shape:
        raise ModelLoadError(f"{tensor.name} has shape {tensor.shape}, expected {expected}")


def join_names(names: list[str], limit: int = 5) -> str:
    """Names for a message; at most ``limit`` of them."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
