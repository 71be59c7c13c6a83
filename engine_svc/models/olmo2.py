"""OLMo 2: norms after attention and MLP instead of before, and over all queries and all keys of a token."""

from __future__ import annotations

from dataclasses import replace

from engine_svc.models.config import NORMS_AFTER, DecoderConfig, HeadNorms, RawConfig
from engine_svc.models.reading import equal_layers, read_decoder


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``Olmo2Config``."""
    raw = raw.with_defaults(rms_norm_eps=1e-5)
    bias = raw.flag("attention_bias", False)
    config = read_decoder(raw, equal_layers(raw), weight_offset=0.0)
    return replace(config, norm_placement=NORMS_AFTER, head_norms=HeadNorms.TOGETHER, qkv_bias=bias, out_bias=bias)
