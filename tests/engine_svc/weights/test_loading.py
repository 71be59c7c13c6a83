from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from engine_svc.layers.linear import Embedding, Linear
from engine_svc.layers.norm import NormConfig, RMSNorm
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.loading import load_weights


@dataclass
class Stored:
    """A tensor of a checkpoint."""

    name: str
    values: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def copy_to(self, destination: torch.Tensor) -> None:
        destination.copy_(self.values)

    def quantized(self) -> None:
        return None


class Block(nn.Module):
    """One layer of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = Embedding(5, 3, dtype=torch.float32)
        self.norm = RMSNorm(3, NormConfig(1e-5), dtype=torch.float32)
        self.packed = Linear(3, {"q": 4, "k": 2}, bias=True, dtype=torch.float32)


def stored(**changes: torch.Tensor | None) -> Iterator[Stored]:
    """All tensors of a block, in no particular order."""
    tensors: dict[str, torch.Tensor | None] = {
        "k.bias": torch.full((2,), 1.0),
        "embed.weight": torch.full((5, 3), 2.0),
        "q.weight": torch.full((4, 3), 3.0),
        "norm.weight": torch.full((3,), 4.0),
        "k.weight": torch.full((2, 3), 5.0),
        "q.bias": torch.full((4,), 6.0),
    }
    tensors |= {name.replace("__", "."): values for name, values in changes.items()}
    return (Stored(name, values) for name, values in tensors.items() if values is not None)


def test_tensors_fill_their_weights() -> None:
    block = Block()

    load_weights(block, stored())

    assert block.packed.bias is not None
    assert block.packed.bias.tolist() == [6.0] * 4 + [1.0] * 2
    assert block.packed.weight[:, 0].tolist() == [3.0] * 4 + [5.0] * 2
    assert block.embed.weight.unique().tolist() == [2.0]
    assert block.norm.weight.tolist() == [4.0] * 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"q__weight": None, "norm__weight": None}, "lacks norm.weight, q.weight"),
        ({"q__weight": torch.ones(3, 4)}, r"q.weight has shape \(3, 4\), expected \(4, 3\)"),
        ({"extra": torch.ones(1)}, "unknown tensor in the checkpoint for this architecture: extra"),
        ({"k__scale": torch.ones(1)}, "unknown tensor .*: k.scale"),
    ],
)
def test_a_checkpoint_with_wrong_tensors_is_refused(changes: dict[str, torch.Tensor | None], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        load_weights(Block(), stored(**changes))


def test_a_duplicate_tensor_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="unknown tensor"):
        load_weights(Block(), [*stored(), *stored()])


def test_ignored_tensors_are_skipped() -> None:
    load_weights(Block(), stored(rotary__inv_freq=torch.ones(3)), ignored=("rotary.inv_freq",))


def test_a_long_list_of_missing_tensors_is_truncated() -> None:
    with pytest.raises(ModelLoadError, match="and 1 more"):
        load_weights(Block(), [])
