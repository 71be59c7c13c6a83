"""Phi 3 and 3.5, Phi 4 mini: Llama with packed matrices, and with positions that are stretched for long contexts.

Stretched models have two sets of factors, and transformers takes one or the other for all tokens by the length of the
whole sequence. Keys that are cached already would have to be computed again when a sequence grows beyond the border, so
only contexts up to there are served, with the set for short ones.
"""

from __future__ import annotations

import math
from dataclasses import replace

from engine_svc.layers.rotary import GivenFactors, RopeConfig
from engine_svc.models.config import DecoderConfig, LayerConfig, RawConfig
from engine_svc.models.reading import equal_layers, read_decoder
from engine_svc.weights.errors import ModelLoadError

_LONG_ROPE = ("longrope", "su", "yarn")
"""Names that Phi 3 has had for the same thing"""


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``Phi3Config``."""
    raw = raw.with_defaults(max_position_embeddings=4096, original_max_position_embeddings=4096, rms_norm_eps=1e-5)
    rope = _read_rope(raw)
    config = read_decoder(raw, equal_layers(raw, LayerConfig(rope, raw.optional_integer("sliding_window"))))
    if rope.scaling is None:
        return replace(config, packed=True)
    border = raw.integer("original_max_position_embeddings")
    return replace(config, packed=True, max_position_embeddings=min(border, config.max_position_embeddings))


def _read_rope(raw: RawConfig) -> RopeConfig:
    """From ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling`` (before)."""
    theta, fraction = raw.number("rope_theta", 10000.0), raw.number("partial_rotary_factor", 1.0)
    section = raw.section("rope_parameters", "rope_scaling")
    if section is None:
        return RopeConfig(theta, None, fraction)
    return RopeConfig(
        section.number("rope_theta", theta), _scaling(raw, section), section.number("partial_rotary_factor", fraction)
    )


def _scaling(raw: RawConfig, section: RawConfig) -> GivenFactors | None:
    """As ``_compute_longrope_parameters`` of transformers, for short contexts."""
    kind = section.text("rope_type", "type")
    if kind in (None, "default"):
        return None
    if kind not in _LONG_ROPE:
        raise ModelLoadError(f"rope scaling {kind!r} is not supported with Phi 3; supported are default, longrope")
    border = raw.integer("original_max_position_embeddings")
    factor = section.number("factor", raw.integer("max_position_embeddings") / border)
    magnitude = math.sqrt(1 + math.log(factor) / math.log(border)) if factor > 1 else 1.0
    return GivenFactors(section.numbers("short_factor"), section.number("attention_factor", magnitude))
