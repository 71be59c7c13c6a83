"""Gemma 2: norms around attention and MLP, soft-capped scores and logits, a sliding window in every other layer."""

from __future__ import annotations

from dataclasses import replace

from engine_svc.models.config import NORMS_AROUND, DecoderConfig, LayerConfig, RawConfig
from engine_svc.models.reading import full_and_sliding_layers, read_decoder, read_rope


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``Gemma2Config``."""
    raw = raw.with_defaults(
        max_position_embeddings=8192, sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0
    )
    rope = read_rope(raw)
    layers = full_and_sliding_layers(
        raw,
        full=LayerConfig(rope),
        sliding=LayerConfig(rope, raw.optional_integer("sliding_window")),
        is_sliding=lambda layer: layer % 2 == 0,
    )
    return replace(read_gemma(raw, layers), attention_softcap=raw.optional_number("attn_logit_softcapping"))


def read_gemma(raw: RawConfig, layers: tuple[LayerConfig, ...]) -> DecoderConfig:
    """The configuration common to Gemma 2 and 3."""
    raw = raw.with_defaults(num_key_value_heads=4, head_dim=256, tie_word_embeddings=True)
    raw.require("use_bidirectional_attention", False)
    config = read_decoder(raw, layers, activation="gelu_pytorch_tanh", weight_offset=1.0)
    bias = raw.flag("attention_bias", False)
    return replace(
        config,
        norm_placement=NORMS_AROUND,
        qkv_bias=bias,
        out_bias=bias,
        attention_scale=raw.number("query_pre_attn_scalar", 256.0) ** -0.5,
        logit_softcap=raw.optional_number("final_logit_softcapping"),
        embedding_scale=config.hidden_size**0.5,
    )
