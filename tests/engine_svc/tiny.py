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
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

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
    """Caps so low that they bite."""
    caps = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}
    return Gemma2Config(**(SIZES | caps | {"head_dim": 6, "query_pre_attn_scalar": 5, "sliding_window": 16} | changes))


def gemma3(**changes: Any) -> Gemma3TextConfig:
    """Two layers with a window, one without, and again."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    sizes = SIZES | {"head_dim": 6, "num_hidden_layers": 4, "layer_types": [*kinds, kinds[0]]}
    return Gemma3TextConfig(**(sizes | {"query_pre_attn_scalar": 5, "sliding_window": 16} | changes))


def olmo2(**changes: Any) -> Olmo2Config:
    return Olmo2Config(**(SIZES | {"pad_token_id": None} | changes))


def random_model(config: PretrainedConfig, seed: int = 0) -> Any:
    """A transformers model with weights of every kind random, norms and biases too."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.randn_like(parameter) * 0.2 + (0.0 if name.endswith("bias") else 1.0))
    return model


def save(model: Any, folder: Path, **options: Any) -> str:
    """Write a Hugging Face folder; returns its path."""
    model.save_pretrained(folder, **options)
    return str(folder)


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def save_gguf(
    model: Any, path: Path, *, kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32, **metadata: Any
) -> str:
    """Write a GGUF file as llama.cpp's converter does; matrices are stored as ``kind``. Returns its path."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_token_list([f"token {i}" for i in range(config.vocab_size)])
    writer.add_eos_token_id(2)
    for key, value in metadata.items():
        writer.add_key_value(f"llama.{key.replace('__', '.')}", value, gguf_type(value))
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = _permuted(name, tensor.float().numpy(), config)
        stored = gguf.GGMLQuantizationType.F32 if values.ndim == 1 else kind
        writer.add_tensor(_gguf_name(name), gguf.quants.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def gguf_type(value: Any) -> gguf.GGUFValueType:
    match value:
        case str():
            return gguf.GGUFValueType.STRING
        case int():
            return gguf.GGUFValueType.UINT32
        case _:
            return gguf.GGUFValueType.FLOAT32


def _gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, inner = stem.split(".", 3)
        return f"blk.{layer}.{_GGUF_NAMES[inner]}.{kind}"
    return f"{_GGUF_NAMES[stem]}.{kind}"


def _permuted(name: str, values: npt.NDArray[np.float32], config: PretrainedConfig) -> npt.NDArray[np.float32]:
    """As ``LlamaModel.permute`` in convert_hf_to_gguf.py."""
    if "q_proj" in name or "k_proj" in name:
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        split = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        return split.swapaxes(1, 2).reshape(values.shape)
    return values
