"""Which executor computes a model.

``EXECUTORS`` has them by name. ``auto`` takes ``cpu`` where the compiled kernels are available and support the model,
``torch`` where they do not, and ``transformers`` for folders of models that are not native.
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
    """Load a model into the requested executor, or the one that ``auto`` chooses.

    Raises ``ModelLoadError`` naming what is wrong or not supported.
    """
    if request.executor != "auto":
        return _loader(request.executor)(request)
    reason = reason_against_native(request.checkpoint.config)
    if request.folder is None or reason is None:
        return load_native(request)
    log.warning("model is not native: computed by transformers, which is slower", reason=reason)
    return _load_transformers(request)


def load_native(request: LoadRequest) -> HiddenStatesExecutor:
    """Load a model of a native family: with the compiled kernels if they support it, else with torch."""
    if request.kernels is None:
        return load_torch(request)
    _, config = read_native(request.checkpoint.config)
    format_ = resolve_format(request.dtype, request.quantization, request.checkpoint, request.kernels)
    if (reason := reason_against_cpu(config, DTYPES[format_])) is None:
        return load_cpu(request)
    if format_ in INTEGERS:
        raise ModelLoadError(
            f"quantization {format_.name.lower()} needs the compiled kernels, which do not support this model: {reason}"
        )
    log.warning("model is not supported by the kernels: computed by plain torch, which is slower", reason=reason)
    return load_torch(request)


def _load_transformers(request: LoadRequest) -> Executor:
    # Imported here because it takes seconds, and native families do not need it.
    from engine_svc.executors.transformers.loading import load_transformers

    return load_transformers(request)


EXECUTORS: Final[dict[str, Callable[[LoadRequest], Executor]]] = {
    "cpu": load_cpu,
    "torch": load_torch,
    "transformers": _load_transformers,
}
"""By the values of ``ENGINE_EXECUTOR``"""


def _loader(name: str) -> Callable[[LoadRequest], Executor]:
    if name not in EXECUTORS:
        raise ModelLoadError(f"unknown executor: {name}; executors: auto, {', '.join(EXECUTORS)}")
    return EXECUTORS[name]
