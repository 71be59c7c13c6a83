"""Mistral 7B and its kin: Llama without biases, with a sliding window in the first version."""

from __future__ import annotations

from engine_svc.models.config import DecoderConfig, RawConfig
from engine_svc.models.reading import equal_layers, read_decoder


def read_config(raw: RawConfig) -> DecoderConfig:
    """A ``sliding_window`` of null means full attention."""
    return read_decoder(raw, equal_layers(raw, window=raw.optional_integer("sliding_window")))
