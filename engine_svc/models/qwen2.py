"""Qwen 2 and 2.5: Llama with biases on queries, keys and values, and an optional sliding window in some layers."""

from __future__ import annotations

from dataclasses import replace

from engine_svc.models.config import DecoderConfig, LayerConfig, RawConfig
from engine_svc.models.reading import full_and_sliding_layers, read_decoder, read_rope


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``Qwen2Config``."""
    raw = raw.with_defaults(num_key_value_heads=32, max_position_embeddings=32768)
    return replace(read_decoder(raw, read_layers(raw)), qkv_bias=True)


def read_layers(raw: RawConfig) -> tuple[LayerConfig, ...]:
    """Without ``layer_types``, layers from ``max_window_layers`` on have the sliding window."""
    rope, first_sliding = read_rope(raw), raw.integer("max_window_layers", 28, minimum=0)
    window = raw.integer("sliding_window", 4096) if raw.flag("use_sliding_window", False) else None
    return full_and_sliding_layers(
        raw,
        full=LayerConfig(rope),
        sliding=LayerConfig(rope, window),
        is_sliding=lambda layer: layer >= first_sliding,
    )
