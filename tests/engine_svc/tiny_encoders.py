"""Tiny random encoders, made by transformers, and the files that sentence-transformers puts beside a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, BertConfig, PretrainedConfig, RobertaConfig, XLMRobertaConfig

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 48,
    "initializer_range": 0.3,
}


def bert(**changes: Any) -> BertConfig:
    return BertConfig(**(SIZES | changes))


def roberta(**changes: Any) -> RobertaConfig:
    return RobertaConfig(**(SIZES | {"type_vocab_size": 1} | changes))


def xlm_roberta(**changes: Any) -> XLMRobertaConfig:
    return XLMRobertaConfig(**(SIZES | {"type_vocab_size": 1} | changes))


def random_encoder(config: PretrainedConfig, kind: Any = AutoModel, seed: int = 0) -> Any:
    """A transformers model with all weights random, norms and biases too."""
    torch.manual_seed(seed)
    model = kind.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.randn_like(parameter) * 0.2 + (0.0 if name.endswith("bias") else 1.0))
    return model


def add_sentence_files(folder: Path, *, length: int | None = None, **pooling: Any) -> None:
    """What sentence-transformers saves for a transformer, then pooling, then norming."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if length is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
