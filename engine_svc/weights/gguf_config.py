"""Converts the metadata of a GGUF file to a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.gguf_architectures import ARCHITECTURES, Architecture
from modelfiles.gguf_header import GgufHeader

ROPE_FACTORS: Final = "rope_freqs.weight"
"""Divisors of the rotary frequencies (Llama 3.1 and later)."""
SHORT_ROPE_FACTORS: Final = "rope_factors_short.weight"
"""Divisors for short contexts (Phi 3, LongRoPE); there is another tensor for long ones."""
ROPE_TENSORS: Final = (ROPE_FACTORS, SHORT_ROPE_FACTORS, "rope_factors_long.weight")
"""Tensors that are configuration, not weights."""

RopeFactors = list[float] | None

_REQUIRED: Final = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
_OPTIONAL: Final = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "rope.freq_base": "rope_theta",
}
_COUNTS: Final = (
    "embedding_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "rope.dimension_count",
)
_REFUSED: Final = (
    "expert_count",
    "attention.scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention.clamp_kqv",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
)


def read_config(path: Path, header: GgufHeader, rope_factors: Callable[[str], RopeFactors]) -> dict[str, Any]:
    """``rope_factors`` reads a tensor by name; None if it does not exist.

    Raises ``ModelLoadError`` if a field is missing or not supported.
    """
    metadata = header.metadata
    arch = architecture_of(path, header)
    prefix = f"{metadata['general.architecture']}."
    if metadata.get("split.count", 1) > 1:
        raise ModelLoadError(f"{path} is one part of a split file; merge the parts with llama.cpp's gguf-split")
    values = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    _refuse(path, values, arch)
    shapes = {info.name: info.shape for info in header.tensors}
    if "token_embd.weight" not in shapes:
        raise ModelLoadError(f"{path} lacks tensor token_embd.weight")
    names = {**_REQUIRED, **_OPTIONAL, **arch.metadata}
    config = {ours: values[theirs] for theirs, ours in names.items() if theirs in values}
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    window = config.get("sliding_window") or None
    rotated = values.get("rope.dimension_count", config["head_dim"])
    return config | {
        # llama.cpp has one architecture for Llama and Mistral; only Mistral has a sliding window.
        "architectures": ["MistralForCausalLM" if window and arch is ARCHITECTURES["llama"] else arch.architecture],
        "vocab_size": shapes["token_embd.weight"][0],
        "sliding_window": window,
        "query_pre_attn_scalar": _query_scalar(config, arch),
        "tie_word_embeddings": "output.weight" not in shapes,
        "attention_bias": "blk.0.attn_q.bias" in shapes,
        "mlp_bias": "blk.0.ffn_up.bias" in shapes,
        "partial_rotary_factor": rotated / config["head_dim"],
        "rope_scaling": _rope_scaling(values, rope_factors),
    }


def architecture_of(path: Path, header: GgufHeader) -> Architecture:
    """The architecture of a file. Raises ``ModelLoadError`` naming the supported ones if it is not supported."""
    name = header.metadata.get("general.architecture")
    if name not in ARCHITECTURES:
        supported = ", ".join(ARCHITECTURES)
        raise ModelLoadError(f"{path}: architecture {name!r} is not supported; supported: {supported}")
    return ARCHITECTURES[name]


def _refuse(path: Path, values: dict[str, Any], arch: Architecture) -> None:
    missing = [key for key in _REQUIRED if key not in values]
    if missing:
        raise ModelLoadError(f"{path} lacks metadata: {', '.join(missing)}")
    counts = [key for key, value in values.items() if key in _COUNTS and not (isinstance(value, int) and value > 0)]
    if counts:
        raise ModelLoadError(f"{path}: metadata {', '.join(counts)} must be a positive integer")
    refused = [key for key in _REFUSED if values.get(key) and key not in arch.metadata]
    if "attention.sliding_window" not in arch.metadata:
        # Some files have a window that is not smaller than the context.
        window = values.get("attention.sliding_window") or values["context_length"]
        refused += ["attention.sliding_window"] if window < values["context_length"] else []
    if refused:
        raise ModelLoadError(f"{path}: metadata {', '.join(refused)} is not supported for this architecture")


def _query_scalar(config: dict[str, Any], arch: Architecture) -> int:
    """Gemma's ``query_pre_attn_scalar``: scores are divided by its square root."""
    by_width = config["num_hidden_layers"] == arch.layers_scaled_by_width
    scalar: int = config["hidden_size"] // config["num_attention_heads"] if by_width else config["head_dim"]
    return scalar


def _rope_scaling(values: dict[str, Any], rope_factors: Callable[[str], RopeFactors]) -> dict[str, Any] | None:
    if (factors := rope_factors(ROPE_FACTORS)) is not None:
        return {"rope_type": "factors", "factors": factors}
    if (short := rope_factors(SHORT_ROPE_FACTORS)) is not None:
        attention_factor = values.get("rope.scaling.attn_factor")
        return {"rope_type": "longrope", "short_factor": short, "attention_factor": attention_factor}
    if "rope.scale_linear" in values:
        return {"rope_type": "linear", "factor": values["rope.scale_linear"]}
    kind = values.get("rope.scaling.type", "none")
    return None if kind == "none" else {"rope_type": kind, "factor": values.get("rope.scaling.factor")}
