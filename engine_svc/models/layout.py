"""What all executors derive from the configuration of a decoder: constants, names and shapes of weights.

The modules of ``decoder.py`` have the same names and shapes; a test compares both for every family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch

from engine_svc.attention.interface import AttentionConfig
from engine_svc.layers.rotary import RopeConfig
from engine_svc.models.config import DecoderConfig, QKNorm

EMBEDDING: Final = "model.embed_tokens.weight"
FINAL_NORM: Final = "model.norm.weight"
HEAD: Final = "lm_head.weight"

Shape = tuple[int, ...]


def attention_config(config: DecoderConfig, dtype: torch.dtype) -> AttentionConfig:
    """``dtype`` is the dtype of the KV cache."""
    return AttentionConfig(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        dtype=dtype,
        windows=tuple(layer.window for layer in config.layers),
        scale=config.attention_scale,
        softcap=config.attention_softcap,
    )


def distinct_ropes(config: DecoderConfig) -> list[RopeConfig]:
    """The distinct RoPE configurations of all layers."""
    return list(dict.fromkeys(layer.rope for layer in config.layers))


def embedding_scale(config: DecoderConfig, dtype: torch.dtype) -> float:
    """Rounded to ``dtype``, as in transformers."""
    return torch.tensor(config.embedding_scale, dtype=dtype, device="cpu").item()


def unused_weights(config: DecoderConfig) -> tuple[str, ...]:
    """Name suffixes of stored tensors that the model computes itself, or shares with another."""
    return ("rotary_emb.inv_freq", HEAD) if config.tie_word_embeddings else ("rotary_emb.inv_freq",)


@dataclass(frozen=True, slots=True)
class LinearLayout:
    """Matrices that multiply the same input: their paths, with their numbers of outputs."""

    outputs: Mapping[str, int]
    inputs: int
    bias: bool

    def shapes(self) -> Iterator[tuple[str, Shape]]:
        for path, outputs in self.outputs.items():
            yield f"{path}.weight", (outputs, self.inputs)
            if self.bias:
                yield f"{path}.bias", (outputs,)


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """One layer. Norms are the names of their weights, or None."""

    qkv: LinearLayout
    out: LinearLayout
    gate_up: LinearLayout
    down: LinearLayout
    before_attention: str | None
    after_attention: str | None
    before_mlp: str | None
    after_mlp: str | None
    query_norm: str | None
    key_norm: str | None


@dataclass(frozen=True, slots=True)
class DecoderLayout:
    """All weights of a decoder, by checkpoint name."""

    layers: tuple[LayerLayout, ...]
    shapes: dict[str, Shape]


def decoder_layout(config: DecoderConfig) -> DecoderLayout:
    layers = tuple(_layer(config, f"model.layers.{index}") for index in range(len(config.layers)))
    shapes: dict[str, Shape] = {EMBEDDING: (config.vocab_size, config.hidden_size)}
    for layer in layers:
        shapes |= _layer_shapes(config, layer)
    shapes[FINAL_NORM] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, config.hidden_size)
    return DecoderLayout(layers, shapes)


def _layer(config: DecoderConfig, path: str) -> LayerLayout:
    place, attention = config.norm_placement, f"{path}.self_attn"
    hidden, inner = config.hidden_size, config.intermediate_size
    has_qk_norm = config.qk_norm != QKNorm.NONE
    return LayerLayout(
        qkv=LinearLayout(_qkv(config, attention), hidden, config.qkv_bias),
        out=LinearLayout({f"{attention}.o_proj": hidden}, config.num_heads * config.head_dim, config.out_bias),
        gate_up=LinearLayout(_gate_up(config, f"{path}.mlp"), hidden, config.mlp_bias),
        down=LinearLayout({f"{path}.mlp.down_proj": hidden}, inner, config.mlp_bias),
        before_attention=_norm(path, place.before_attention),
        after_attention=_norm(path, place.after_attention),
        before_mlp=_norm(path, place.before_mlp),
        after_mlp=_norm(path, place.after_mlp),
        query_norm=f"{attention}.q_norm.weight" if has_qk_norm else None,
        key_norm=f"{attention}.k_norm.weight" if has_qk_norm else None,
    )


def _qkv(config: DecoderConfig, path: str) -> dict[str, int]:
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    if config.packed:
        return {f"{path}.qkv_proj": query + 2 * key}
    return {f"{path}.q_proj": query, f"{path}.k_proj": key, f"{path}.v_proj": key}


def _gate_up(config: DecoderConfig, path: str) -> dict[str, int]:
    inner = config.intermediate_size
    if config.packed:
        return {f"{path}.gate_up_proj": 2 * inner}
    return {f"{path}.gate_proj": inner, f"{path}.up_proj": inner}


def _norm(path: str, name: str | None) -> str | None:
    return None if name is None else f"{path}.{name}.weight"


def _layer_shapes(config: DecoderConfig, layer: LayerLayout) -> Iterator[tuple[str, Shape]]:
    for linear in (layer.qkv, layer.out, layer.gate_up, layer.down):
        yield from linear.shapes()
    for name in (layer.before_attention, layer.after_attention, layer.before_mlp, layer.after_mlp):
        if name is not None:
            yield name, (config.hidden_size,)
    over_all_heads = config.qk_norm == QKNorm.ALL_HEADS
    for name, heads in ((layer.query_norm, config.num_heads), (layer.key_norm, config.num_kv_heads)):
        if name is not None:
            yield name, (config.head_dim * (heads if over_all_heads else 1),)
