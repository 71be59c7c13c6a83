"""Decoder checkpoints without the LM head, which embedding does not need, whether it was saved or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine_svc.models.registry import FAMILIES
from engine_svc.weights.checkpoint import Checkpoint, StoredTensor
from engine_svc.weights.renaming import renamed

_BASE_MODEL: Final = "model."
_HEAD: Final = "lm_head."


@dataclass(frozen=True, slots=True)
class Headless:
    """See ``engine_svc.weights.checkpoint.Checkpoint``. The LM head is left out, and its weights count as tied."""

    stored: Checkpoint

    @property
    def config(self) -> Mapping[str, Any]:
        architectures = [causal_lm_name(str(name)) for name in self.stored.config.get("architectures") or []]
        return {**self.stored.config, "architectures": architectures, "tie_word_embeddings": True}

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.stored.eos_token_ids

    @property
    def is_quantized(self) -> bool:
        return self.stored.is_quantized

    def tensors(self) -> Iterator[StoredTensor]:
        return renamed(self.stored.tensors(), _decoder_name)


def causal_lm_name(architecture: str) -> str:
    """The ``ForCausalLM`` name of an architecture of a known family, whether it was saved with LM head or not."""
    name = architecture.removesuffix("Model") + "ForCausalLM"
    return name if name in FAMILIES else architecture


def _decoder_name(stored: str) -> str | None:
    """Weights of a model that was saved without LM head lack the ``model.`` prefix."""
    if stored.startswith(_HEAD):
        return None
    return _BASE_MODEL + stored.removeprefix(_BASE_MODEL)
