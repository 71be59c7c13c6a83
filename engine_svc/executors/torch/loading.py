"""From a checkpoint of a native family to an executor in plain torch."""

from __future__ import annotations

from engine_svc.attention.backends import create_backend
from engine_svc.executors.interface import ExecutorInfo
from engine_svc.executors.load_request import LoadRequest
from engine_svc.executors.torch.executor import TorchExecutor
from engine_svc.models.batch_invariant import make_batch_invariant
from engine_svc.models.decoder import Decoder
from engine_svc.models.precision import DTYPES, resolve_format
from engine_svc.models.registry import read_native
from engine_svc.weights.loading import load_weights


def load_torch(request: LoadRequest) -> TorchExecutor:
    """See ``engine_svc.executors.loading.load_executor``. Computes in floats only, with any attention backend."""
    family, config = read_native(request.checkpoint.config)
    format_ = resolve_format(request.dtype, request.quantization, request.checkpoint, None)
    decoder = Decoder(config, DTYPES[format_])
    load_weights(decoder, request.checkpoint.tensors(), ignored=decoder.unused_weights)
    if request.deterministic:
        make_batch_invariant(decoder)
    attention = request.with_cache(decoder.attention_config)
    cache = request.cache.layout(attention.cache_dtype, attention.kv_bytes_per_token)
    info = ExecutorInfo(
        model_type=family.model_type,
        dtype=format_.name.lower(),
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        cache=cache,
        batch_invariant=request.deterministic,
    )
    backend = create_backend(
        request.attention_backend,
        attention,
        request.kernels,
        num_blocks=cache.num_blocks,
        block_size=cache.block_size,
        batch_invariant=request.deterministic,
    )
    return TorchExecutor(decoder, backend, info)
