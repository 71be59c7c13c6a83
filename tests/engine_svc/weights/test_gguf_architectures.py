from __future__ import annotations

import gguf
import pytest

from engine_svc.models.registry import FAMILIES
from engine_svc.weights.gguf_architectures import ARCHITECTURES

MODEL_ARCHS = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
UNUSED = {"rope_freqs", "rope_factors_long", "rope_factors_short", "attn_rot_embd"}
EXPERTS = {"ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}


def theirs(arch: str) -> set[str]:
    """The tensor names of an architecture in the gguf package, without ``blk.N.``."""
    tensors = gguf.MODEL_TENSORS[MODEL_ARCHS[arch]]
    return {gguf.TENSOR_NAMES[tensor].removeprefix("blk.{bid}.") for tensor in tensors}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_tensor_of_the_architecture_has_a_name(arch: str) -> None:
    assert theirs(arch) - UNUSED - EXPERTS <= ARCHITECTURES[arch].tensors.keys()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_names_equal_those_of_the_gguf_package(arch: str) -> None:
    names = gguf.get_tensor_name_map(MODEL_ARCHS[arch], 1)
    known = {their: our for their, our in ARCHITECTURES[arch].tensors.items() if their in theirs(arch)}

    for their, our in known.items():
        in_layer = names.get_name(f"model.layers.0.{our}")
        assert (in_layer or names.get_name(our)) in (f"blk.0.{their}", their)


def test_every_architecture_has_a_native_family() -> None:
    assert {architecture.architecture for architecture in ARCHITECTURES.values()} <= FAMILIES.keys()
