"""Qwen 3: Qwen 2 with per-head QK norm instead of the biases."""

from __future__ import annotations

from dataclasses import replace

from engine_svc.models import qwen2
from engine_svc.models.config import DecoderConfig, QKNorm, RawConfig
from engine_svc.models.reading import read_decoder


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``Qwen3Config``."""
    raw = raw.with_defaults(num_key_value_heads=32, head_dim=128, max_position_embeddings=32768)
    bias = raw.flag("attention_bias", False)
    config = read_decoder(raw, qwen2.read_layers(raw))
    return replace(config, qkv_bias=bias, out_bias=bias, qk_norm=QKNorm.PER_HEAD)
