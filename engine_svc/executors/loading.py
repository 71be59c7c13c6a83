"""From a checkpoint to a model that can compute steps: by a native family, or else by transformers."""

from __future__ import annotations

import structlog
import torch

from engine_svc.executors.cpu.decoder import CompiledDecoder, reason_against_compiled
from engine_svc.executors.cpu.weights import DTYPES, INTEGERS, pack_weights
from engine_svc.kernels.library import Kernels
from engine_svc.kernels.packing import Format
from engine_svc.models.causal_lm import CausalLM, LoadedModel
from engine_svc.models.config import DecoderConfig, RawConfig
from engine_svc.models.decoder import Decoder
from engine_svc.models.registry import find_family, reason_against_native
from engine_svc.weights.checkpoint import Checkpoint
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.loading import load_weights
from engine_svc.weights.safetensors_folder import SafetensorsFolder

log = structlog.get_logger(__name__)


def load_model(checkpoint: Checkpoint, format_: Format, kernels: Kernels | None = None) -> LoadedModel:
    """A model that is computed by these kernels as far as they can, or by torch.

    Without kernels, ``format_`` is one of floats.

    Raises ``ModelLoadError`` naming what is wrong or not supported. A GGUF file must be of a native family.
    """
    if isinstance(checkpoint, SafetensorsFolder) and (reason := reason_against_native(checkpoint.config)) is not None:
        return _fallback(checkpoint, format_, reason)
    family = find_family(checkpoint.config)
    config = family.read_config(RawConfig(checkpoint.config))
    model = _native(checkpoint, config, format_, kernels)
    return LoadedModel(
        model,
        family.model_type,
        config.vocab_size,
        config.max_position_embeddings,
        rows_are_independent=isinstance(model, CompiledDecoder),
    )


def _native(checkpoint: Checkpoint, config: DecoderConfig, format_: Format, kernels: Kernels | None) -> CausalLM:
    if kernels is None:
        return _plain(checkpoint, config, DTYPES[format_])
    if (reason := reason_against_compiled(config, DTYPES[format_])) is None:
        return _compiled(checkpoint, config, format_, kernels)
    if format_ in INTEGERS:
        raise ModelLoadError(f"quantization {format_.name.lower()} needs the compiled forward pass: {reason}")
    log.warning("not compiled: computed by plain torch, which is slower", reason=reason)
    return _plain(checkpoint, config, DTYPES[format_])


def _plain(checkpoint: Checkpoint, config: DecoderConfig, dtype: torch.dtype) -> CausalLM:
    decoder = Decoder(config, dtype)
    load_weights(decoder, checkpoint.tensors(), ignored=decoder.unused_weights)
    return decoder


def _compiled(checkpoint: Checkpoint, config: DecoderConfig, format_: Format, kernels: Kernels) -> CausalLM:
    return CompiledDecoder(pack_weights(checkpoint, config, format_, lanes=kernels.lanes), kernels)


def _fallback(checkpoint: SafetensorsFolder, format_: Format, reason: str) -> LoadedModel:
    if format_ in INTEGERS:
        raise ModelLoadError(f"quantization {format_.name.lower()} is for native families: {reason}")
    # Imported here because it takes seconds, and native families do without.
    from engine_svc.executors.transformers.loading import load_fallback

    log.warning("not native: computed by transformers, which is slower", reason=reason)
    try:
        return load_fallback(checkpoint.folder, RawConfig(checkpoint.config), DTYPES[format_])
    except ModelLoadError as error:
        raise ModelLoadError(f"{error}. Nor is it native: {reason}") from error
