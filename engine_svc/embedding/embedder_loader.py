"""Loads an embedder from a checkpoint, and detects whether a checkpoint is an embedding model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from engine_svc.embedding.embedder import Embedder
from engine_svc.embedding.headless import Headless, causal_lm_name
from engine_svc.embedding.hidden_states import DecoderHiddenStates, EncoderHiddenStates, HiddenStatesModel, cache_for
from engine_svc.embedding.interface import EmbedderInfo, Pooling
from engine_svc.embedding.sentence_transformers import is_sentence_transformers_model, read_sentence_transformers_config
from engine_svc.executors.load_request import LoadRequest
from engine_svc.executors.loading import load_native
from engine_svc.models.config import RawConfig
from engine_svc.models.encoder import Encoder
from engine_svc.models.encoders import ENCODERS, EncoderFamily, find_encoder
from engine_svc.models.precision import resolve_dtype
from engine_svc.models.registry import read_native, reason_against_native
from engine_svc.weights.checkpoint import Checkpoint, open_checkpoint
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.loading import load_weights
from engine_svc.weights.renaming import renamed
from engine_svc.weights.source import locate

Task = Literal["auto", "generate", "embed"]


def is_for_embedding(model: str, task: Task) -> bool:
    """Whether a model is loaded for embedding, or else for generation. ``auto`` decides by its files.

    Embedding models are encoders, decoders without LM head, and models saved by sentence-transformers. Raises
    ``ModelLoadError`` if ``task`` is ``generate`` and the model is an embedding model.
    """
    if task == "embed":
        return True
    path = locate(model)
    if not path.is_dir():
        return False
    architectures = [str(name) for name in open_checkpoint(path).config.get("architectures") or []]
    only_embeds = any(name in ENCODERS or causal_lm_name(name) != name for name in architectures)
    if only_embeds and task == "generate":
        raise ModelLoadError(f"{', '.join(architectures)} is an embedding model; generation is not supported")
    return task == "auto" and (only_embeds or is_sentence_transformers_model(path))


def load_embedder(
    *,
    model: str,
    dtype: str = "auto",
    max_model_len: int | None = None,
    num_threads: int | None = None,
    max_num_batched_tokens: int = 512,
    attention_backend: str = "auto",
) -> Embedder:
    """Load a model from a folder, a .gguf file or a Hugging Face id.

    ``dtype`` is ``float32``, ``bfloat16``, or ``auto``: float32 for an encoder, because its vectors are stored and
    compared with others; the fastest dtype on this CPU for a decoder. ``max_model_len`` None is the limit in the
    sentence-transformers files, or that of the model. ``max_num_batched_tokens`` is the token budget of a pass. The
    other arguments are as in ``engine_svc.executors.load_request``. Raises ``ModelLoadError`` if the model or an
    argument is not supported.
    """
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    path = locate(model)
    stated = read_sentence_transformers_config(path)
    checkpoint = open_checkpoint(path)
    longest = _model_len(max_model_len, stated.max_seq_length, _longest(checkpoint))
    loaded = _load(checkpoint, dtype, attention_backend, longest, max_num_batched_tokens)
    info = EmbedderInfo(
        model_path=model,
        model_type=loaded.model_type,
        dtype=loaded.dtype,
        vocab_size=loaded.vocab_size,
        max_model_len=longest,
        embedding_dim=_embedding_dim(loaded.hidden_states),
        pooling=stated.pooling or loaded.pooling,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    return Embedder(loaded.hidden_states, info)


@dataclass(frozen=True, slots=True)
class _LoadedModel:
    """A model with its weights, and its default pooling."""

    hidden_states: HiddenStatesModel
    model_type: str
    dtype: str
    vocab_size: int
    pooling: Pooling


def _longest(checkpoint: Checkpoint) -> int:
    """Maximum tokens of a text. Raises ``ModelLoadError`` if embedding with the model is not supported."""
    if (family := find_encoder(checkpoint.config)) is not None:
        return family.read_config(RawConfig(checkpoint.config)).max_position_embeddings
    raw = RawConfig(checkpoint.config)
    raw.require("is_causal", True)
    raw.require("use_bidirectional_attention", False)
    headless = Headless(checkpoint)
    if (reason := reason_against_native(headless.config)) is not None:  # transformers computes logits only
        raise ModelLoadError(
            f"embedding with this model is not supported: {reason}. Supported encoders: {', '.join(ENCODERS)}"
        )
    return read_native(headless.config)[1].max_position_embeddings


def _load(
    checkpoint: Checkpoint, dtype: str, attention_backend: str, longest: int, max_num_batched_tokens: int
) -> _LoadedModel:
    if (family := find_encoder(checkpoint.config)) is not None:
        if attention_backend == "cpu":
            raise ModelLoadError("attention backend cpu does not support encoders; use auto or reference")
        return _load_encoder(checkpoint, family, torch.float32 if dtype == "auto" else resolve_dtype(dtype))
    cache = cache_for(max(longest, max_num_batched_tokens), max_num_batched_tokens)
    request = LoadRequest(
        Headless(checkpoint), cache, dtype=dtype, quantization="none", attention_backend=attention_backend
    )
    executor = load_native(request)
    info = executor.info
    return _LoadedModel(DecoderHiddenStates(executor), info.model_type, info.dtype, info.vocab_size, "last")


def _load_encoder(checkpoint: Checkpoint, family: EncoderFamily, dtype: torch.dtype) -> _LoadedModel:
    config = family.read_config(RawConfig(checkpoint.config))
    encoder = Encoder(config, dtype)
    load_weights(encoder, renamed(checkpoint.tensors(), family.weight_name), ignored=Encoder.unused_weights)
    name = str(dtype).removeprefix("torch.")
    return _LoadedModel(EncoderHiddenStates(encoder), family.model_type, name, config.vocab_size, "mean")


@torch.inference_mode()
def _embedding_dim(model: HiddenStatesModel) -> int:
    return model(torch.zeros(1, dtype=torch.int64), [1]).shape[1]


def _model_len(given: int | None, configured: int | None, limit: int) -> int:
    if given is not None and not 1 <= given <= limit:
        raise ModelLoadError(f"max_model_len must be between 1 and {limit} (the limit of this model), got {given}")
    return given or min(configured or limit, limit)
