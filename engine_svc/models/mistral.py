"""Mistral 7B and its kin: Llama without biases, with a sliding window in the first version."""

from __future__ import annotations

from dataclasses import replace

from engine_svc.models import llama
from engine_svc.models.config import DecoderConfig, RawConfig


def read_config(raw: RawConfig) -> DecoderConfig:
    """A ``sliding_window`` of null means full attention."""
    return replace(
        llama.read_config(raw),
        attention_bias=False,
        mlp_bias=False,
        sliding_window=raw.optional_integer("sliding_window"),
    )
