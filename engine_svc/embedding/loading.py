"""From a checkpoint to an embedder, and which checkpoints are for embedding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import torch

from engine_svc.embedding.embedder import Embedder
from engine_svc.embedding.interface import EmbedderInfo, Pooling
from engine_svc.embedding.sentence_transformers import is_stated, read_stated_use
from engine_svc.embedding.token_vectors import DecoderVectors, EncoderVectors, TokenVectors
from engine_svc.models.config import RawConfig
from engine_svc.models.decoder import Decoder
from engine_svc.models.encoder import Encoder
from engine_svc.models.encoders import ENCODERS, EncoderFamily, find_encoder
from engine_svc.models.precision import resolve_dtype
from engine_svc.models.registry import FAMILIES, Family, find_family
from engine_svc.weights.checkpoint import Checkpoint, open_checkpoint
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.loading import load_weights
from engine_svc.weights.renaming import renamed
from engine_svc.weights.source import locate

Task = Literal["auto", "generate", "embed"]

_BELOW_THE_HEAD: Final = "model."
_HEAD: Final = "lm_head."


def is_for_embedding(model: str, task: Task) -> bool:
    """Whether a model is to embed; it does that or generates. ``auto`` goes by the files.

    For embedding are encoders, decoders without an output matrix, and what sentence-transformers saved. Raises
    ``ModelLoadError`` if it is to generate and cannot.
    """
    if task == "embed":
        return True
    path = locate(model)
    if not path.is_dir():
        return False
    architectures = [str(name) for name in open_checkpoint(path).config.get("architectures") or []]
    only_embeds = any(name in ENCODERS or _with_head(name) != name for name in architectures)
    if only_embeds and task == "generate":
        raise ModelLoadError(f"{', '.join(architectures)} embeds and cannot generate")
    return task == "auto" and (only_embeds or is_stated(path))


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

    ``dtype`` is ``float32``, ``bfloat16``, or ``auto``: for an encoder float32, because its vectors are kept and
    compared with others, for a decoder what this CPU computes fastest. ``max_model_len`` of None takes what
    sentence-transformers' files say, or the model's own limit. ``max_num_batched_tokens`` is the size of a pass. The
    rest is as in ``engine_svc.execution.model_runner``. Raises ``ModelLoadError`` if the model or these numbers will
    not do.
    """
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    path = locate(model)
    stated = read_stated_use(path)
    network = _load(open_checkpoint(path), dtype)
    config = network.module.config
    info = EmbedderInfo(
        model_path=model,
        model_type=network.model_type,
        dtype=str(network.module.dtype).removeprefix("torch."),
        vocab_size=config.vocab_size,
        max_model_len=_model_len(max_model_len, stated.max_seq_length, config.max_position_embeddings),
        embedding_dim=config.hidden_size,
        pooling=stated.pooling or network.pooling,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    return Embedder(_token_vectors(network.module, info, attention_backend), info)


@dataclass(frozen=True, slots=True)
class _Network:
    """A model with its weights, and how it is pooled when nobody says."""

    module: Encoder | Decoder
    model_type: str
    pooling: Pooling


def _load(checkpoint: Checkpoint, dtype: str) -> _Network:
    if (encoder := find_encoder(checkpoint.config)) is not None:
        return _load_encoder(checkpoint, encoder, torch.float32 if dtype == "auto" else resolve_dtype(dtype))
    architectures = [_with_head(str(name)) for name in checkpoint.config.get("architectures") or []]
    if not any(name in FAMILIES for name in architectures):
        raise ModelLoadError(
            f"architecture {', '.join(architectures) or 'none given'} is not supported for embedding; "
            f"supported are {', '.join((*ENCODERS, *FAMILIES))}"
        )
    return _load_decoder(checkpoint, find_family({"architectures": architectures}), resolve_dtype(dtype))


def _load_encoder(checkpoint: Checkpoint, family: EncoderFamily, dtype: torch.dtype) -> _Network:
    encoder = Encoder(family.read_config(RawConfig(checkpoint.config)), dtype)
    load_weights(encoder, renamed(checkpoint.tensors(), family.name), ignored=Encoder.unused_weights)
    return _Network(encoder, family.model_type, "mean")


def _load_decoder(checkpoint: Checkpoint, family: Family, dtype: torch.dtype) -> _Network:
    raw = RawConfig(checkpoint.config)
    raw.only("is_causal", True)
    raw.only("use_bidirectional_attention", False)
    # Tied, it has no output matrix of its own.
    decoder = Decoder(replace(family.read_config(raw), tie_word_embeddings=True), dtype)
    load_weights(decoder, renamed(checkpoint.tensors(), _decoder_name), ignored=decoder.unused_weights)
    return _Network(decoder, family.model_type, "last")


def _with_head(architecture: str) -> str:
    """The name of the whole model of a known family, whether its output matrix was saved with it or not."""
    whole = architecture.removesuffix("Model") + "ForCausalLM"
    return whole if whole in FAMILIES else architecture


def _decoder_name(stored: str) -> str | None:
    """What was saved without the output matrix lacks the prefix of what is below it."""
    if stored.startswith(_HEAD):
        return None
    return _BELOW_THE_HEAD + stored.removeprefix(_BELOW_THE_HEAD)


def _token_vectors(module: Encoder | Decoder, info: EmbedderInfo, attention_backend: str) -> TokenVectors:
    if isinstance(module, Encoder):
        return EncoderVectors(module)
    return DecoderVectors(
        module,
        backend=attention_backend,
        max_num_tokens=max(info.max_num_batched_tokens, info.max_model_len),
        max_num_texts=info.max_num_batched_tokens,
    )


def _model_len(wanted: int | None, stated: int | None, limit: int) -> int:
    if wanted is not None and not 1 <= wanted <= limit:
        raise ModelLoadError(f"max_model_len {wanted} is not between 1 and {limit}, the longest text of this model")
    return wanted or min(stated or limit, limit)
