"""Tiny random checkpoints, made by transformers and by the gguf package as their users would make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def llama(**changes: Any) -> LlamaConfig:
    return LlamaConfig(**(SIZES | changes))


def mistral(**changes: Any) -> MistralConfig:
    return MistralConfig(**(SIZES | {"sliding_window": 16} | changes))


def qwen2(**changes: Any) -> Qwen2Config:
    return Qwen2Config(**(SIZES | changes))


def qwen3(**changes: Any) -> Qwen3Config:
    return Qwen3Config(**(SIZES | {"head_dim": 6} | changes))


def gemma2(**changes: Any) -> Gemma2Config:
    """Softcaps low enough to have an effect."""
    caps = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}
    return Gemma2Config(**(SIZES | caps | {"head_dim": 6, "query_pre_attn_scalar": 5, "sliding_window": 16} | changes))


def gemma3(**changes: Any) -> Gemma3TextConfig:
    """Two layers with a sliding window, one without, and again."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    sizes = SIZES | {"head_dim": 6, "num_hidden_layers": 4, "layer_types": [*kinds, kinds[0]]}
    return Gemma3TextConfig(**(sizes | {"query_pre_attn_scalar": 5, "sliding_window": 16} | changes))


def olmo2(**changes: Any) -> Olmo2Config:
    return Olmo2Config(**(SIZES | {"pad_token_id": None} | changes))


def phi3(**changes: Any) -> Phi3Config:
    return Phi3Config(**(SIZES | {"pad_token_id": None} | changes))


def random_model(config: PretrainedConfig, seed: int = 0) -> Any:
    """A transformers model with all weights random, norms and biases too."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    norm = 0.0 if config.model_type.startswith("gemma") else 1.0  # Gemma adds 1 itself.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.randn_like(parameter) * 0.2 + (0.0 if name.endswith("bias") else norm))
    return model


def save(model: Any, folder: Path, **options: Any) -> str:
    """Write a Hugging Face folder; returns its path."""
    model.save_pretrained(folder, **options)
    return str(folder)


_ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}
"""llama.cpp's name where it differs from transformers'."""


def save_gguf(
    model: Any,
    path: Path,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    embedding_kind: gguf.GGMLQuantizationType | None = None,
    **metadata: Any,
) -> str:
    """Write a GGUF file as llama.cpp's converter does; returns its path.

    Matrices are stored as ``kind``, those with a row for each token as ``embedding_kind`` if it is given.
    """
    config = model.config
    arch = _ARCHITECTURES.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_token_list([f"token {i}" for i in range(config.vocab_size)])
    writer.add_eos_token_id(2)
    _add_positions(writer, config)
    _add_gemma(writer, config)
    for key, value in metadata.items():
        writer.add_key_value(f"{arch}.{key.replace('__', '.')}", value, gguf_type(value))
    names = gguf.get_tensor_name_map(_MODEL_ARCHS[arch], config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = _converted(name, tensor.float().numpy(), config, arch)
        if values.ndim == 1:
            stored = gguf.GGMLQuantizationType.F32
        elif embedding_kind is not None and len(values) == config.vocab_size:
            stored = embedding_kind
        else:
            stored = kind
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, f"the architecture has no {name}"
        writer.add_tensor(theirs, gguf.quants.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


_MODEL_ARCHS = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}


def _add_positions(writer: gguf.GGUFWriter, config: PretrainedConfig) -> None:
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    writer.add_key_length(head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if isinstance(config, LlamaConfig) and rope["rope_type"] == "llama3":
        plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, head_dim, 2) / head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / LlamaRotaryEmbedding(config).inv_freq).numpy())
    if rope["rope_type"] == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
        for length in ("short", "long"):
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32))
    if (window := getattr(config, "sliding_window", None)) is not None:
        writer.add_sliding_window(window)


def _add_gemma(writer: gguf.GGUFWriter, config: PretrainedConfig) -> None:
    if (cap := getattr(config, "attn_logit_softcapping", None)) is not None:
        writer.add_attn_logit_softcapping(cap)
    if (cap := getattr(config, "final_logit_softcapping", None)) is not None:
        writer.add_final_logit_softcapping(cap)


def gguf_type(value: Any) -> gguf.GGUFValueType:
    match value:
        case str():
            return gguf.GGUFValueType.STRING
        case int():
            return gguf.GGUFValueType.UINT32
        case _:
            return gguf.GGUFValueType.FLOAT32


def _converted(
    name: str, values: npt.NDArray[np.float32], config: PretrainedConfig, arch: str
) -> npt.NDArray[np.float32]:
    """As ``modify_tensors`` of LlamaModel, Gemma2Model and Gemma3Model in convert_hf_to_gguf.py."""
    if arch == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        split = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        return split.swapaxes(1, 2).reshape(values.shape)
    return values + 1 if arch.startswith("gemma") and name.endswith("norm.weight") else values
