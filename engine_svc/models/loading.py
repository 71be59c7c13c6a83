"""From a checkpoint to a model that can compute steps."""

from __future__ import annotations

import torch

from engine_svc.models.causal_lm import LoadedModel
from engine_svc.models.config import RawConfig
from engine_svc.models.decoder import Decoder
from engine_svc.models.registry import find_family
from engine_svc.weights.checkpoint import Checkpoint
from engine_svc.weights.loading import load_weights


def load_model(checkpoint: Checkpoint, dtype: torch.dtype) -> LoadedModel:
    """Raises ``ModelLoadError`` naming what is wrong or not supported."""
    family = find_family(checkpoint.config)
    config = family.read_config(RawConfig(checkpoint.config))
    decoder = Decoder(config, dtype)
    load_weights(decoder, checkpoint.tensors(), ignored=decoder.unused_weights)
    return LoadedModel(decoder, family.model_type, config.vocab_size, config.max_position_embeddings)
