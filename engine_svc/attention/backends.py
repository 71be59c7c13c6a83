"""Which attention backend computes."""

from __future__ import annotations

from typing import Final

import structlog

from engine_svc.attention.cpu import CpuAttention
from engine_svc.attention.interface import AttentionBackend, AttentionConfig
from engine_svc.attention.reference import ReferenceAttention
from engine_svc.kernels.library import Kernels, load_kernels
from engine_svc.weights.errors import ModelLoadError

_HOW: Final = "python -m engine_svc.kernels.build"

log = structlog.get_logger(__name__)


def create_backend(
    name: str, config: AttentionConfig, *, num_blocks: int, block_size: int, independent_rows: bool = False
) -> AttentionBackend:
    """``reference``, ``cpu``, or ``auto`` for ``cpu`` where its kernels are built and ``reference`` elsewhere.

    With ``independent_rows`` what a token gets depends on its own sequence alone, to the last bit. Raises
    ``ModelLoadError`` when ``cpu`` is asked for and not there.
    """
    kernels = find_kernels(name)
    if kernels is None:
        return ReferenceAttention(
            config, num_blocks=num_blocks, block_size=block_size, independent_rows=independent_rows
        )
    return CpuAttention(config, kernels, num_blocks=num_blocks, block_size=block_size)


def find_kernels(name: str) -> Kernels | None:
    """The kernels that the backend of this name works with, if any. Raises as ``create_backend``."""
    if name == "reference":
        return None
    kernels = load_kernels()
    if kernels is None and name == "cpu":
        raise ModelLoadError(f"attention backend cpu has no kernels for this machine; they are built by {_HOW}")
    if kernels is None:
        log.warning("no kernels are built for this machine, so plain torch computes, which is slower", build_by=_HOW)
    return kernels
