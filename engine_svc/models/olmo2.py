"""OLMo 2: norms after attention and MLP instead of before, and QK norm over all heads of a token."""

from __future__ import annotations

from dataclasses import replace

from engine_svc.models.config import NORMS_AFTER, DecoderConfig, LayerConfig, QKNorm, RawConfig
from engine_svc.models.reading import read_decoder, read_rope, uniform_layers


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``Olmo2Config``."""
    raw = raw.with_defaults(rms_norm_eps=1e-5)
    bias = raw.flag("attention_bias", False)
    config = read_decoder(raw, uniform_layers(raw, LayerConfig(read_rope(raw))), weight_offset=0.0)
    return replace(config, norm_placement=NORMS_AFTER, qk_norm=QKNorm.ALL_HEADS, qkv_bias=bias, out_bias=bias)
