"""The supported GGUF architectures, and how to undo the changes of llama.cpp's converter (convert_hf_to_gguf.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_COMMON: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_QK_NORM: Final = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_NORMS_AFTER: Final = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_NORMS_AROUND: Final = _NORMS_AFTER | {"ffn_norm": "pre_feedforward_layernorm"}
_PACKED: Final = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_WINDOW: Final = {"attention.sliding_window": "sliding_window"}


@dataclass(frozen=True, slots=True)
class Architecture:
    """How to read a file. Names are without ``.weight`` or ``.bias``, and inside a layer without ``blk.N.``."""

    architecture: str
    """The Hugging Face name"""
    tensors: Mapping[str, str]
    """GGUF tensor name -> Hugging Face name"""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """GGUF metadata key -> config.json field, for keys that other architectures do not have"""
    interleaved: bool = False
    """Whether the two halves of each query and key head are interleaved"""
    norm_offset: float = 0.0
    """Offset that the converter added to the weights of norms"""
    layers_scaled_by_width: int | None = None
    """Number of layers of the one model size whose scores are scaled by hidden size / heads instead of the head size.
    The file does not say which it is; llama.cpp decides by this number too."""


ARCHITECTURES: Final = {
    "llama": Architecture("LlamaForCausalLM", _COMMON, _WINDOW, interleaved=True),
    "qwen2": Architecture("Qwen2ForCausalLM", _COMMON),
    "qwen3": Architecture("Qwen3ForCausalLM", _COMMON | _QK_NORM),
    "gemma2": Architecture(
        "Gemma2ForCausalLM",
        _COMMON | _NORMS_AROUND,
        _WINDOW
        | {
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        norm_offset=1.0,
        layers_scaled_by_width=46,
    ),
    "gemma3": Architecture(
        "Gemma3ForCausalLM",
        _COMMON | _NORMS_AROUND | _QK_NORM,
        _WINDOW
        | {
            "attention.sliding_window_pattern": "sliding_window_pattern",
            "rope.freq_base_swa": "rope_local_base_freq",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        norm_offset=1.0,
        layers_scaled_by_width=62,
    ),
    "phi3": Architecture(
        "Phi3ForCausalLM",
        _COMMON | _PACKED,
        _WINDOW | {"rope.scaling.original_context_length": "original_max_position_embeddings"},
    ),
    "olmo2": Architecture("Olmo2ForCausalLM", _COMMON | _QK_NORM | _NORMS_AFTER),
}
"""By ``general.architecture``."""
