"""Selects the attention backend."""

from __future__ import annotations

from typing import Final

import structlog

from engine_svc.attention.cpu import CpuAttention, reason_against_kernel
from engine_svc.attention.interface import AttentionBackend, AttentionConfig
from engine_svc.attention.reference import ReferenceAttention
from engine_svc.kernels.library import Kernels, load_kernels
from engine_svc.kernels.structures import StructureMismatch
from engine_svc.weights.errors import ModelLoadError

_BUILD_COMMAND: Final = "python -m engine_svc.kernels.build"
_NO_KERNELS: Final = (
    "the compiled kernels are not available: plain torch runs the whole model, several times slower, without "
    "quantization, and by default without speculation"
)

log = structlog.get_logger(__name__)


def find_kernels(name: str) -> Kernels | None:
    """The kernels for a backend: ``reference`` (none), ``cpu``, or ``auto``: ``cpu`` if the kernels are available.

    Call it once per model, because it logs a warning if they are not. Raises ``ModelLoadError`` if ``name`` is ``cpu``
    and they are not available, or if the library does not match this version.
    """
    if name == "reference":
        return None
    try:
        kernels, reason = load_kernels(), "they are not built for this machine"
    except OSError as error:
        kernels, reason = None, f"they cannot be loaded: {error}"
    except StructureMismatch as error:
        raise ModelLoadError(f"{error}. Rebuild them with {_BUILD_COMMAND}") from error
    if kernels is None and name == "cpu":
        raise ModelLoadError(
            f"attention backend cpu needs the compiled kernels: {reason}. Build them with {_BUILD_COMMAND}"
        )
    if kernels is None:
        log.warning(_NO_KERNELS, reason=reason, build_command=_BUILD_COMMAND)
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
    """The backend of this name, with the ``kernels`` that ``find_kernels`` returned for it.

    With ``batch_invariant`` the output for a token depends on its own sequence only, bit for bit. Raises
    ``ModelLoadError`` if ``name`` is ``cpu`` and the kernel does not support this configuration.
    """
    if kernels is not None and _is_supported(name, config):
        return CpuAttention(config, kernels, num_blocks=num_blocks, block_size=block_size)
    return ReferenceAttention(config, num_blocks=num_blocks, block_size=block_size, batch_invariant=batch_invariant)


def _is_supported(name: str, config: AttentionConfig) -> bool:
    reason = reason_against_kernel(config.head_dim, config.dtype)
    if reason is None:
        return True
    if name == "cpu":
        raise ModelLoadError(f"attention backend cpu does not support this model: {reason}")
    log.warning("attention falls back to plain torch, which is slower", reason=reason)
    return False
