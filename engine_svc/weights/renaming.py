"""Tensors under other names than the checkpoint has for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from engine_svc.weights.checkpoint import StoredTensor
from engine_svc.weights.quantized import QuantizedRows


@dataclass(frozen=True, slots=True)
class Renamed:
    """See ``engine_svc.weights.checkpoint.StoredTensor``."""

    name: str
    stored: StoredTensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    def quantized(self) -> QuantizedRows | None:
        return self.stored.quantized()

    def copy_to(self, destination: Tensor) -> None:
        self.stored.copy_to(destination)


def renamed(tensors: Iterable[StoredTensor], name: Callable[[str], str | None]) -> Iterator[StoredTensor]:
    """The same tensors under the names that ``name`` gives them; None leaves one out."""
    for tensor in tensors:
        if (new := name(tensor.name)) is not None:
            yield Renamed(new, tensor)
