"""Llama 1 to 3, SmolLM and all other models with the architecture ``LlamaForCausalLM``."""

from __future__ import annotations

from dataclasses import replace

from engine_svc.models.config import DecoderConfig, LayerConfig, RawConfig
from engine_svc.models.reading import read_decoder, read_rope, uniform_layers


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``LlamaConfig``."""
    config = read_decoder(raw, uniform_layers(raw, LayerConfig(read_rope(raw))))
    bias = raw.flag("attention_bias", False)
    return replace(config, qkv_bias=bias, out_bias=bias, mlp_bias=raw.flag("mlp_bias", False))
