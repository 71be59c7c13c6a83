"""Which executor computes a model.

``EXECUTORS`` has them by name. ``auto`` takes ``cpu`` where the compiled kernels are in use and compute the model,
``torch`` where they do not, and ``transformers`` for folders that no native family can serve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from engine_svc.executors.cpu.decoder import reason_against_cpu
from engine_svc.executors.cpu.loading import load_cpu
from engine_svc.executors.interface import Executor, HiddenStatesExecutor
from engine_svc.executors.load_request import LoadRequest
from engine_svc.executors.torch.loading import load_torch
from engine_svc.models.precision import DTYPES, INTEGERS, resolve_format
from engine_svc.models.registry import read_native, reason_against_native
from engine_svc.weights.errors import ModelLoadError

log = structlog.get_logger(__name__)


def load_executor(request: LoadRequest) -> Executor:
    """Load a model into the executor that the request names or that suits it.

    Raises ``ModelLoadError`` naming what is wrong or not supported.
    """
    if request.executor != "auto":
        return _find(request.executor)(request)
    reason = reason_against_native(request.checkpoint.config)
    if request.folder is None or reason is None:
        return load_native(request)
    log.warning("not native: computed by transformers, which is slower", reason=reason)
    return _load_transformers(request)


def load_native(request: LoadRequest) -> HiddenStatesExecutor:
    """Load a model of a native family: by the compiled kernels as far as they can, or by torch."""
    if request.kernels is None:
        return load_torch(request)
    _, config = read_native(request.checkpoint.config)
    format_ = resolve_format(request.dtype, request.quantization, request.checkpoint, request.kernels)
    if (reason := reason_against_cpu(config, DTYPES[format_])) is None:
        return load_cpu(request)
    if format_ in INTEGERS:
        raise ModelLoadError(f"quantization {format_.name.lower()} needs the compiled forward pass: {reason}")
    log.warning("not compiled: computed by plain torch, which is slower", reason=reason)
    return load_torch(request)


def _load_transformers(request: LoadRequest) -> Executor:
    # Imported here because it takes seconds, and native families do without.
    from engine_svc.executors.transformers.loading import load_transformers

    return load_transformers(request)


EXECUTORS: Final[dict[str, Callable[[LoadRequest], Executor]]] = {
    "cpu": load_cpu,
    "torch": load_torch,
    "transformers": _load_transformers,
}
"""By the values of ``ENGINE_EXECUTOR``"""


def _find(name: str) -> Callable[[LoadRequest], Executor]:
    if name not in EXECUTORS:
        raise ModelLoadError(f"executor {name} is not known; there are auto, {', '.join(EXECUTORS)}")
    return EXECUTORS[name]
