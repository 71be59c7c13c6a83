"""Phi 3 and 3.5, Phi 4 mini: Llama with packed matrices, and LongRoPE for long contexts.

LongRoPE has two sets of factors, and transformers selects one for all tokens by the length of the whole sequence. All
cached keys would have to be recomputed when a sequence grows beyond ``original_max_position_embeddings``. So only
contexts up to that length are served, with the short factors.
"""

from __future__ import annotations

import math
from dataclasses import replace

from engine_svc.layers.rotary import PerFrequencyScaling, RopeConfig
from engine_svc.models.config import DecoderConfig, LayerConfig, RawConfig
from engine_svc.models.reading import read_decoder, uniform_layers
from engine_svc.weights.errors import ModelLoadError

_LONG_ROPE = ("longrope", "su", "yarn")
"""Names of LongRoPE in versions of Phi 3"""


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``Phi3Config``."""
    raw = raw.with_defaults(max_position_embeddings=4096, original_max_position_embeddings=4096, rms_norm_eps=1e-5)
    rope = _read_rope(raw)
    config = read_decoder(raw, uniform_layers(raw, LayerConfig(rope, raw.optional_integer("sliding_window"))))
    if rope.scaling is None:
        return replace(config, packed=True)
    original = raw.integer("original_max_position_embeddings")
    return replace(config, packed=True, max_position_embeddings=min(original, config.max_position_embeddings))


def _read_rope(raw: RawConfig) -> RopeConfig:
    """From ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling`` (before)."""
    theta, partial = raw.number("rope_theta", 10000.0), raw.number("partial_rotary_factor", 1.0)
    section = raw.section("rope_parameters", "rope_scaling")
    if section is None:
        return RopeConfig(theta, None, partial)
    return RopeConfig(
        section.number("rope_theta", theta), _scaling(raw, section), section.number("partial_rotary_factor", partial)
    )


def _scaling(raw: RawConfig, section: RawConfig) -> PerFrequencyScaling | None:
    """As in ``_compute_longrope_parameters`` of transformers, for short contexts."""
    kind = section.text("rope_type", "type")
    if kind in (None, "default"):
        return None
    if kind not in _LONG_ROPE:
        raise ModelLoadError(f"rope scaling {kind!r} is not supported for Phi 3; supported: default, longrope")
    original = raw.integer("original_max_position_embeddings")
    factor = section.number("factor", raw.integer("max_position_embeddings") / original)
    attention_factor = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return PerFrequencyScaling(section.numbers("short_factor"), section.number("attention_factor", attention_factor))
