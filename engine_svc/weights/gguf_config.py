"""The metadata of a GGUF file as the content of a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.gguf_header import GgufHeader

ROPE_FACTORS: Final = "rope_freqs.weight"
"""The tensor by which llama.cpp divides the rotary frequencies (Llama 3.1 and later)."""

RopeFactors = list[float] | None

_ARCHITECTURES: Final = {"llama": "LlamaForCausalLM"}
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
    "attention.sliding_window": "sliding_window",
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
    "attention.clamp_kqv",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
)


def read_config(path: Path, header: GgufHeader, rope_factors: Callable[[], RopeFactors]) -> dict[str, Any]:
    """Raises ``ModelLoadError`` if something is missing or not supported."""
    metadata = header.metadata
    arch = metadata.get("general.architecture")
    if arch not in _ARCHITECTURES:
        raise ModelLoadError(
            f"{path}: architecture {arch!r} is not supported; supported are {', '.join(_ARCHITECTURES)}"
        )
    if metadata.get("split.count", 1) > 1:
        raise ModelLoadError(f"{path} is one of several parts; merge them with llama.cpp's gguf-split first")
    values = {key.removeprefix(f"{arch}."): value for key, value in metadata.items() if key.startswith(f"{arch}.")}
    _refuse(path, values)
    shapes = {info.name: info.shape for info in header.tensors}
    if "token_embd.weight" not in shapes:
        raise ModelLoadError(f"{path} lacks the tensor token_embd.weight")
    config = {ours: values[theirs] for theirs, ours in (_REQUIRED | _OPTIONAL).items() if theirs in values}
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    rotated = values.get("rope.dimension_count", config["head_dim"])
    return config | {
        # llama.cpp has one architecture for both; only Mistral's has a window.
        "architectures": ["MistralForCausalLM" if "sliding_window" in config else _ARCHITECTURES[arch]],
        "vocab_size": shapes["token_embd.weight"][0],
        "tie_word_embeddings": "output.weight" not in shapes,
        "attention_bias": "blk.0.attn_q.bias" in shapes,
        "mlp_bias": "blk.0.ffn_up.bias" in shapes,
        "partial_rotary_factor": rotated / config["head_dim"],
        "rope_scaling": _rope_scaling(values, rope_factors()),
    }


def _refuse(path: Path, values: dict[str, Any]) -> None:
    missing = [key for key in _REQUIRED if key not in values]
    if missing:
        raise ModelLoadError(f"{path} lacks the metadata {', '.join(missing)}")
    counts = [key for key, value in values.items() if key in _COUNTS and not (isinstance(value, int) and value > 0)]
    if counts:
        raise ModelLoadError(f"{path}: the metadata {', '.join(counts)} must be one whole number above 0")
    refused = [key for key in _REFUSED if values.get(key)]
    if refused:
        raise ModelLoadError(f"{path}: models with {', '.join(refused)} are not supported")


def _rope_scaling(values: dict[str, Any], factors: RopeFactors) -> dict[str, Any] | None:
    if factors is not None:
        return {"rope_type": "factors", "factors": factors}
    if "rope.scale_linear" in values:
        return {"rope_type": "linear", "factor": values["rope.scale_linear"]}
    kind = values.get("rope.scaling.type", "none")
    return None if kind == "none" else {"rope_type": kind, "factor": values.get("rope.scaling.factor")}
