"""Mistral: Llama without biases, with a sliding window in the first version of Mistral 7B."""

from __future__ import annotations

from engine_svc.models.config import DecoderConfig, LayerConfig, RawConfig
from engine_svc.models.reading import read_decoder, read_rope, uniform_layers


def read_config(raw: RawConfig) -> DecoderConfig:
    """A ``sliding_window`` of null means full attention."""
    layer = LayerConfig(read_rope(raw), raw.optional_integer("sliding_window"))
    return read_decoder(raw, uniform_layers(raw, layer))
