"""Fills a model from a checkpoint. Each layer says which stored tensors it takes, and where they go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from engine_svc.weights.checkpoint import StoredTensor
from engine_svc.weights.errors import ModelLoadError


@runtime_checkable
class Loadable(Protocol):
    """A layer with weights."""

    def stored_weights(self, path: str) -> Iterator[tuple[str, Tensor]]:
        """The name of each stored tensor, and the part of this layer's weights that it fills.

        ``path`` is the layer's own place in the model, as in ``model.layers.0.mlp.down_proj``.
        """


def load_weights(model: nn.Module, tensors: Iterable[StoredTensor], *, ignored: tuple[str, ...] = ()) -> None:
    """Fill every weight of ``model``; names that end with one of ``ignored`` are passed over.

    Raises ``ModelLoadError`` if a tensor is missing, has the wrong shape or is not known to the model.
    """
    for tensor, destination in match_weights(model, tensors, ignored=ignored):
        with torch.no_grad():
            tensor.copy_to(destination)


def match_weights(
    model: nn.Module, tensors: Iterable[StoredTensor], *, ignored: tuple[str, ...] = ()
) -> Iterator[tuple[StoredTensor, Tensor]]:
    """Each stored tensor with the weights that it fills. Errors as in ``load_weights``, the last after all tensors."""
    destinations = _destinations(model)
    for tensor in tensors:
        if tensor.name in destinations:
            destination = destinations.pop(tensor.name)
            _check_shape(tensor, destination)
            yield tensor, destination
        elif not tensor.name.endswith(ignored):
            raise ModelLoadError(f"the checkpoint has {tensor.name}, which this architecture does not know")
    if destinations:
        raise ModelLoadError(f"the checkpoint lacks {listed(list(destinations))}")


def _destinations(model: nn.Module) -> dict[str, Tensor]:
    layers = ((path, module) for path, module in model.named_modules() if isinstance(module, Loadable))
    return dict(pair for path, module in layers for pair in module.stored_weights(path))


def _check_shape(tensor: StoredTensor, destination: Tensor) -> None:
    if tuple(destination.shape) != tensor.shape:
        raise ModelLoadError(f"{tensor.name} has shape {tensor.shape}, expected {tuple(destination.shape)}")


def listed(names: list[str], most: int = 5) -> str:
    """Names for a message; only the first ``most`` of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
