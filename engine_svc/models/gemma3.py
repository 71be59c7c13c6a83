"""Gemma 3, text only: Gemma 2 with QK norm instead of soft-capped scores, and another RoPE base in sliding layers."""

from __future__ import annotations

from dataclasses import replace

from engine_svc.layers.rotary import RopeConfig
from engine_svc.models.config import DecoderConfig, LayerConfig, QKNorm, RawConfig
from engine_svc.models.gemma2 import read_gemma
from engine_svc.models.reading import full_and_sliding_layers, read_rope, rope_of


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``Gemma3TextConfig``."""
    raw = raw.with_defaults(max_position_embeddings=131072, sliding_window=4096, rope_theta=1_000_000.0)
    raw.require("attn_logit_softcapping", None)
    full_every = raw.integer("sliding_window_pattern", 6)
    layers = full_and_sliding_layers(
        raw,
        full=LayerConfig(_full_rope(raw)),
        sliding=LayerConfig(_sliding_rope(raw), raw.optional_integer("sliding_window")),
        is_sliding=lambda layer: (layer + 1) % full_every != 0,
    )
    return replace(read_gemma(raw, layers), qk_norm=QKNorm.PER_HEAD)


def _full_rope(raw: RawConfig) -> RopeConfig:
    """From ``rope_parameters.full_attention`` (transformers 5), or as in other families (before)."""
    section = raw.section("rope_parameters")
    if section is None:
        return read_rope(raw)
    theta = raw.number("rope_theta")
    full = section.section("full_attention")
    return RopeConfig(theta) if full is None else rope_of(full, theta)


def _sliding_rope(raw: RawConfig) -> RopeConfig:
    """From ``rope_parameters.sliding_attention`` (transformers 5) or ``rope_local_base_freq`` (before)."""
    theta = raw.number("rope_local_base_freq", 10000.0)
    section = raw.section("rope_parameters")
    local = None if section is None else section.section("sliding_attention")
    return RopeConfig(theta) if local is None else rope_of(local, theta)
