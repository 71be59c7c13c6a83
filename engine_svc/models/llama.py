"""Llama 1 to 3, SmolLM and everything else that calls itself ``LlamaForCausalLM``."""

from __future__ import annotations

from engine_svc.layers.rotary import GivenFactors, LinearScaling, Llama3Scaling, RopeConfig, RopeScaling
from engine_svc.models.config import DecoderConfig, RawConfig
from engine_svc.weights.errors import ModelLoadError


def read_config(raw: RawConfig) -> DecoderConfig:
    """Defaults are those of transformers' ``LlamaConfig``."""
    raw.only("hidden_act", "silu")
    raw.only("partial_rotary_factor", 1.0)
    num_heads, hidden_size = raw.integer("num_attention_heads"), raw.integer("hidden_size")
    return DecoderConfig(
        vocab_size=raw.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=raw.integer("intermediate_size"),
        num_layers=raw.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=raw.integer("num_key_value_heads", num_heads),
        head_dim=raw.integer("head_dim", hidden_size // num_heads),
        max_position_embeddings=raw.integer("max_position_embeddings", 2048),
        rms_norm_eps=raw.number("rms_norm_eps", 1e-6),
        rope=read_rope(raw),
        tie_word_embeddings=raw.flag("tie_word_embeddings", False),
        attention_bias=raw.flag("attention_bias", False),
        mlp_bias=raw.flag("mlp_bias", False),
    )


def read_rope(raw: RawConfig) -> RopeConfig:
    """From ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling`` (before)."""
    section = raw.section("rope_parameters", "rope_scaling")
    theta = raw.number("rope_theta", 10000.0)
    if section is None:
        return RopeConfig(theta)
    section.only("partial_rotary_factor", 1.0)
    return RopeConfig(section.number("rope_theta", theta), _scaling(section))


def _scaling(section: RawConfig) -> RopeScaling | None:
    match section.text("rope_type", "type"):
        case None | "default":
            return None
        case "linear":
            return LinearScaling(section.number("factor"))
        case "factors":
            return GivenFactors(section.numbers("factors"))
        case "llama3":
            return Llama3Scaling(
                factor=section.number("factor"),
                low_freq_factor=section.number("low_freq_factor"),
                high_freq_factor=section.number("high_freq_factor"),
                original_max_position_embeddings=section.integer("original_max_position_embeddings"),
            )
        case other:
            raise ModelLoadError(f"rope scaling {other!r} is not supported; supported are default, linear, llama3")
