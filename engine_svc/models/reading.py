"""Reads the parts of a config.json that all families share."""

from __future__ import annotations

from collections.abc import Callable

from engine_svc.layers.norm import NormConfig
from engine_svc.layers.rotary import LinearScaling, Llama3Scaling, PerFrequencyScaling, RopeConfig, RopeScaling
from engine_svc.models.config import DecoderConfig, LayerConfig, RawConfig
from engine_svc.weights.errors import ModelLoadError


def read_decoder(
    raw: RawConfig, layers: tuple[LayerConfig, ...], *, activation: str = "silu", weight_offset: float | None = None
) -> DecoderConfig:
    """All sizes. Switches are those of Llama; ``weight_offset`` as in ``NormConfig``."""
    raw.require("hidden_act", activation)
    raw.require("hidden_activation", activation)
    num_heads, hidden_size = raw.integer("num_attention_heads"), raw.integer("hidden_size")
    return DecoderConfig(
        vocab_size=raw.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=raw.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=raw.integer("num_key_value_heads", num_heads),
        head_dim=raw.integer("head_dim", hidden_size // num_heads),
        max_position_embeddings=raw.integer("max_position_embeddings", 2048),
        tie_word_embeddings=raw.flag("tie_word_embeddings", False),
        layers=layers,
        norm=NormConfig(raw.number("rms_norm_eps", 1e-6), weight_offset),
        activation=activation,
    )


def read_rope(raw: RawConfig) -> RopeConfig:
    """From ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling`` (before)."""
    raw.require("partial_rotary_factor", 1.0)
    section = raw.section("rope_parameters", "rope_scaling")
    theta = raw.number("rope_theta", 10000.0)
    return RopeConfig(theta) if section is None else rope_of(section, theta)


def rope_of(section: RawConfig, theta: float) -> RopeConfig:
    """From one section of parameters; ``theta`` is the base if the section has none."""
    section.require("partial_rotary_factor", 1.0)
    return RopeConfig(section.number("rope_theta", theta), _scaling(section))


def uniform_layers(raw: RawConfig, layer: LayerConfig) -> tuple[LayerConfig, ...]:
    return (layer,) * raw.integer("num_hidden_layers")


def full_and_sliding_layers(
    raw: RawConfig, *, full: LayerConfig, sliding: LayerConfig, is_sliding: Callable[[int], bool]
) -> tuple[LayerConfig, ...]:
    """Layers by ``layer_types`` of the configuration, or by ``is_sliding`` of the layer index if there is none."""
    num_layers, given = raw.integer("num_hidden_layers"), raw.texts("layer_types")
    if given is None:
        given = tuple("sliding_attention" if is_sliding(layer) else "full_attention" for layer in range(num_layers))
    if len(given) != num_layers:
        raise ModelLoadError(f"config: layer_types must have {num_layers} entries, got {len(given)}")
    kinds = {"full_attention": full, "sliding_attention": sliding}
    if unknown := set(given) - set(kinds):
        raise ModelLoadError(
            f"config: layer_types {', '.join(sorted(unknown))} is not supported; supported: {', '.join(kinds)}"
        )
    return tuple(kinds[name] for name in given)


def _scaling(section: RawConfig) -> RopeScaling | None:
    match section.text("rope_type", "type"):
        case None | "default":
            return None
        case "linear":
            return LinearScaling(section.number("factor"))
        case "factors":
            return PerFrequencyScaling(section.numbers("factors"))
        case "llama3":
            return Llama3Scaling(
                factor=section.number("factor"),
                low_freq_factor=section.number("low_freq_factor"),
                high_freq_factor=section.number("high_freq_factor"),
                original_max_position_embeddings=section.integer("original_max_position_embeddings"),
            )
        case other:
            raise ModelLoadError(f"rope scaling {other!r} is not supported; supported: default, linear, llama3")
