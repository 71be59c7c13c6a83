"""BERT and RoBERTa: they differ in the first position and in the defaults of the configuration."""

from __future__ import annotations

from engine_svc.models.config import RawConfig
from engine_svc.models.encoder import EncoderConfig


def read_bert(raw: RawConfig) -> EncoderConfig:
    """Defaults are those of transformers' ``BertConfig``."""
    return _read(raw, first_position=0)


def read_roberta(raw: RawConfig) -> EncoderConfig:
    """Defaults are those of transformers' ``RobertaConfig`` and ``XLMRobertaConfig``."""
    return _read(raw, first_position=raw.with_defaults(pad_token_id=1).integer("pad_token_id", minimum=0) + 1)


def _read(raw: RawConfig, *, first_position: int) -> EncoderConfig:
    raw.require("hidden_act", "gelu")
    raw.require("position_embedding_type", "absolute")
    raw.require("is_decoder", False)
    raw.require("add_cross_attention", False)
    return EncoderConfig(
        vocab_size=raw.integer("vocab_size"),
        hidden_size=raw.integer("hidden_size"),
        intermediate_size=raw.integer("intermediate_size"),
        num_heads=raw.integer("num_attention_heads"),
        num_layers=raw.integer("num_hidden_layers"),
        num_positions=raw.integer("max_position_embeddings", 512),
        first_position=first_position,
        num_token_types=raw.integer("type_vocab_size", 2),
        norm_eps=raw.number("layer_norm_eps", 1e-12),
    )
