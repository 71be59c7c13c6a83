"""Decoders without their output matrix, which an embedding does not need, whether it was saved with them or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine_svc.models.registry import FAMILIES
from engine_svc.weights.checkpoint import Checkpoint, StoredTensor
from engine_svc.weights.renaming import renamed

_BELOW_THE_HEAD: Final = "model."
_HEAD: Final = "lm_head."


@dataclass(frozen=True, slots=True)
class Headless:
    """See ``engine_svc.weights.checkpoint.Checkpoint``. Embeddings stand for the output matrix, which is left out."""

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
    """The name of the whole model of a known family, whether its output matrix was saved with it or not."""
    whole = architecture.removesuffix("Model") + "ForCausalLM"
    return whole if whole in FAMILIES else architecture


def _decoder_name(stored: str) -> str | None:
    """What was saved without the output matrix lacks the prefix of what is below it."""
    if stored.startswith(_HEAD):
        return None
    return _BELOW_THE_HEAD + stored.removeprefix(_BELOW_THE_HEAD)
