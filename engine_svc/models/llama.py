"""Llama 1 to 3, SmolLM and everything else that calls itself ``LlamaForCausalLM``."""

from __future__ import annotations

from dataclasses import replace

from engine_svc.models.config import DecoderConfig, RawConfig
from engine_svc.models.reading import equal_layers, read_decoder


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``LlamaConfig``."""
    bias, mlp_bias = raw.flag("attention_bias", False), raw.flag("mlp_bias", False)
    return replace(read_decoder(raw, equal_layers(raw)), qkv_bias=bias, out_bias=bias, mlp_bias=mlp_bias)
