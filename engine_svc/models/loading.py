"""From a checkpoint to a model that can compute steps: by a native family, or else by transformers."""

from __future__ import annotations

import structlog
import torch

from engine_svc.models.causal_lm import LoadedModel
from engine_svc.models.config import RawConfig
from engine_svc.models.decoder import Decoder
from engine_svc.models.registry import find_family, reason_against_native
from engine_svc.weights.checkpoint import Checkpoint
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.loading import load_weights
from engine_svc.weights.safetensors_folder import SafetensorsFolder

log = structlog.get_logger(__name__)


def load_model(checkpoint: Checkpoint, dtype: torch.dtype) -> LoadedModel:
    """Raises ``ModelLoadError`` naming what is wrong or not supported. A GGUF file must be of a native family."""
    if isinstance(checkpoint, SafetensorsFolder) and (reason := reason_against_native(checkpoint.config)) is not None:
        return _load_fallback(checkpoint, dtype, reason)
    family = find_family(checkpoint.config)
    config = family.read_config(RawConfig(checkpoint.config))
    decoder = Decoder(config, dtype)
    load_weights(decoder, checkpoint.tensors(), ignored=decoder.unused_weights)
    return LoadedModel(decoder, family.model_type, config.vocab_size, config.max_position_embeddings)


def _load_fallback(checkpoint: SafetensorsFolder, dtype: torch.dtype, reason: str) -> LoadedModel:
    # Imported here because it takes seconds, and native families do without.
    from engine_svc.models.fallback.loading import load_fallback

    log.warning("not native: computed by transformers, which is slower", reason=reason)
    try:
        return load_fallback(checkpoint.folder, RawConfig(checkpoint.config), dtype)
    except ModelLoadError as error:
        raise ModelLoadError(f"{error}. Nor is it native: {reason}") from error
