"""What the decoder must know of a model, whatever its family calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from engine_svc.layers.norm import NormConfig
from engine_svc.layers.rotary import RopeConfig
from engine_svc.weights.errors import ModelLoadError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NormPlacement:
    """Where a layer norms, each place by the name that checkpoints give to its weights; None where it does not."""

    before_attention: str | None
    after_attention: str | None
    before_mlp: str | None
    after_mlp: str | None


NORMS_BEFORE: Final = NormPlacement("input_layernorm", None, "post_attention_layernorm", None)
NORMS_AFTER: Final = NormPlacement(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
NORMS_AROUND: Final = NormPlacement(
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)


class HeadNorms(Enum):
    """Which queries, and which keys, of a token are normed together."""

    NONE = "none"
    EACH = "each head for itself"
    TOGETHER = "all heads together"


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """What differs between the layers of some models. ``window`` as in ``AttentionConfig.windows``."""

    rope: RopeConfig
    window: int | None = None


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and switches of a decoder; what has a default here is as Llama has it."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    layers: tuple[LayerConfig, ...]
    norm: NormConfig
    norm_placement: NormPlacement = NORMS_BEFORE
    head_norms: HeadNorms = HeadNorms.NONE
    activation: str = "silu"
    """A key of ``engine_svc.layers.activation.ACTIVATIONS``"""
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    packed: bool = False
    """Whether checkpoints keep query, key and value as one matrix, and gate and up as another"""
    attention_scale: float | None = None
    attention_softcap: float | None = None
    """This and the scale as in ``engine_svc.attention.interface.AttentionConfig``"""
    logit_softcap: float | None = None
    embedding_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelLoadError(f"{self.num_heads} attention heads cannot share {self.num_kv_heads} key-value heads")
        for rotated in {int(self.head_dim * layer.rope.fraction) for layer in self.layers}:
            if rotated % 2:
                raise ModelLoadError(f"a head size of {rotated} cannot be rotated in pairs")


class RawConfig:
    """Reads a config.json by name and type; null counts as absent. Raises ``ModelLoadError`` naming what is wrong."""

    def __init__(self, values: Mapping[str, Any], where: str = "config") -> None:
        self._values = values
        self._where = where

    def with_defaults(self, **defaults: Any) -> RawConfig:
        """The same with values for names that are absent; null stays null."""
        return RawConfig({**defaults, **self._values}, self._where)

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number, ``least`` or above."""
        value = self._typed(name, int, default)
        if value < least:
            raise ModelLoadError(f"{self._where}: {name} must be {least} or above, got {value}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._typed(name, (int, float), default)
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        return self._typed(name, bool, default)

    def optional_integer(self, name: str) -> int | None:
        return self.integer(name) if self._values.get(name) is not None else None

    def optional_number(self, name: str) -> float | None:
        return self.number(name) if self._values.get(name) is not None else None

    def section(self, *names: str) -> RawConfig | None:
        """The first of these objects that is there."""
        name = next((name for name in names if self._values.get(name) is not None), None)
        return None if name is None else RawConfig(self._typed(name, dict, None), f"{self._where}.{name}")

    def text(self, *names: str) -> str | None:
        """The first of these strings that is there."""
        name = next((name for name in names if self._values.get(name) is not None), None)
        return None if name is None else self._typed(name, str, None)

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(map(float, self._typed(name, list, None)))

    def texts(self, name: str) -> tuple[str, ...] | None:
        return tuple(map(str, self._typed(name, list, None))) if self._values.get(name) is not None else None

    def only(self, name: str, supported: Any) -> None:
        """Refuse a model that has this at another value than the one that is implemented."""
        value = self._values.get(name)
        if value is not None and value != supported:
            raise ModelLoadError(f"{self._where}: {name} {value!r} is not supported, only {supported!r}")

    def _typed(self, name: str, types: type[T] | tuple[type[T], ...], default: T | None) -> T:
        value = self._values.get(name)
        if value is None:
            value = default
        if value is None:
            raise ModelLoadError(f"{self._where} lacks {name}")
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise ModelLoadError(f"{self._where}: {name} has a value of the wrong type, {value!r}")
        return value
