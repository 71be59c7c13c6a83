"""From a checkpoint of a native family to an executor with the compiled kernels."""

from __future__ import annotations

from engine_svc.attention.cpu import KernelCache
from engine_svc.executors.cpu.decoder import reason_against_cpu
from engine_svc.executors.cpu.executor import CpuExecutor
from engine_svc.executors.cpu.tiles import measure_tile_rows
from engine_svc.executors.cpu.weights import pack_weights
from engine_svc.executors.interface import ExecutorInfo
from engine_svc.executors.load_request import LoadRequest
from engine_svc.kernels.library import Kernels
from engine_svc.models.layout import attention_config
from engine_svc.models.precision import DTYPES, resolve_format
from engine_svc.models.registry import read_native
from engine_svc.weights.errors import ModelLoadError


def load_cpu(request: LoadRequest) -> CpuExecutor:
    """See ``engine_svc.executors.loading.load_executor``. It computes attention itself."""
    kernels = _kernels(request)
    family, config = read_native(request.checkpoint.config)
    format_ = resolve_format(request.dtype, request.quantization, request.checkpoint, kernels)
    if (reason := reason_against_cpu(config, DTYPES[format_])) is not None:
        raise ModelLoadError(f"executor cpu does not support this model: {reason}")
    attention = request.with_cache(attention_config(config, DTYPES[format_]))
    cache = request.cache.layout(attention.cache_dtype, attention.kv_bytes_per_token)
    info = ExecutorInfo(
        model_type=family.model_type,
        dtype=format_.name.lower(),
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        cache=cache,
        batch_invariant=True,
    )
    weights = pack_weights(request.checkpoint, config, format_, lanes=kernels.lanes)
    own_cache = KernelCache(attention, num_blocks=cache.num_blocks, block_size=cache.block_size)
    tile_rows = measure_tile_rows(weights, kernels, num_threads=own_cache.shape.num_threads)
    return CpuExecutor(weights, kernels, own_cache, info, tile_rows)


def _kernels(request: LoadRequest) -> Kernels:
    if request.attention_backend == "reference":
        raise ModelLoadError(
            "executor cpu: attention backend must be auto or cpu, not reference (executor torch supports it)"
        )
    if request.kernels is None:
        raise ModelLoadError(
            "executor cpu: the compiled kernels are missing; build them with python -m engine_svc.kernels.build"
        )
    return request.kernels
