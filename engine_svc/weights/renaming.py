"""Renames the tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from engine_svc.weights.checkpoint import StoredTensor
from engine_svc.weights.quantized import QuantizedRows


@dataclass(frozen=True, slots=True)
class Renamed:
    """A stored tensor under another name (see ``engine_svc.weights.checkpoint.StoredTensor``)."""

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
    """The tensors renamed by ``name``, which maps a name to a new one, or to None to skip the tensor."""
    for tensor in tensors:
        if (new := name(tensor.name)) is not None:
            yield Renamed(new, tensor)
