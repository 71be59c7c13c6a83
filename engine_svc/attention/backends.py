"""Which attention backend computes."""

from __future__ import annotations

from typing import Final

import structlog

from engine_svc.attention.cpu import CpuAttention, reason_against_kernel
from engine_svc.attention.interface import AttentionBackend, AttentionConfig
from engine_svc.attention.reference import ReferenceAttention
from engine_svc.kernels.library import Kernels, load_kernels
from engine_svc.kernels.structures import StructureMismatch
from engine_svc.weights.errors import ModelLoadError

_HOW: Final = "python -m engine_svc.kernels.build"
_WITHOUT: Final = (
    "the compiled kernels are not there: plain torch computes all of the model, which is several times slower, without "
    "quantization, and by default without speculation"
)

log = structlog.get_logger(__name__)


def find_kernels(name: str) -> Kernels | None:
    """The kernels for a backend of this name: ``reference``, ``cpu``, or ``auto`` for ``cpu`` where they are built.

    To be called once for each model, because it logs what is missing. Raises ``ModelLoadError`` when ``cpu`` is asked
    for and not there, or when they do not match this version.
    """
    if name == "reference":
        return None
    try:
        kernels, reason = load_kernels(), "they are not built for this machine"
    except OSError as error:
        kernels, reason = None, f"they cannot be loaded: {error}"
    except StructureMismatch as error:
        raise ModelLoadError(f"{error}. They are built by {_HOW}") from error
    if kernels is None and name == "cpu":
        raise ModelLoadError(f"attention backend cpu has no kernels: {reason}. They are built by {_HOW}")
    if kernels is None:
        log.warning(_WITHOUT, reason=reason, build_by=_HOW)
    return kernels


def create_backend(
    name: str,
    config: AttentionConfig,
    kernels: Kernels | None,
    *,
    num_blocks: int,
    block_size: int,
    batch_invariant: bool = False,
) -> AttentionBackend:
    """The backend of this name, with what ``find_kernels`` found for it.

    With ``batch_invariant`` what a token gets depends on its own sequence alone, to the last bit. Raises
    ``ModelLoadError`` when ``cpu`` is asked for and cannot compute this.
    """
    if kernels is not None and _suits(name, config):
        return CpuAttention(config, kernels, num_blocks=num_blocks, block_size=block_size)
    return ReferenceAttention(config, num_blocks=num_blocks, block_size=block_size, batch_invariant=batch_invariant)


def _suits(name: str, config: AttentionConfig) -> bool:
    reason = reason_against_kernel(config.head_dim, config.dtype)
    if reason is None:
        return True
    if name == "cpu":
        raise ModelLoadError(f"attention backend cpu cannot compute this model: {reason}")
    log.warning("attention is computed by plain torch, which is slower", reason=reason)
    return False
