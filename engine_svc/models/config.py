"""The configuration of a decoder, independent of the family, and a typed reader for config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from engine_svc.layers.norm import NormConfig
from engine_svc.layers.rotary import PerFrequencyScaling, RopeConfig
from engine_svc.weights.errors import ModelLoadError

T = TypeVar("T")

_JSON_TYPES: Final[dict[Any, str]] = {
    int: "an integer",
    (int, float): "a number",
    bool: "true or false",
    str: "a string",
    list: "an array",
    dict: "an object",
}
"""Names of types for error messages."""


@dataclass(frozen=True, slots=True)
class NormPlacement:
    """The norms of a layer: for each place the checkpoint name of the norm, or None if there is no norm."""

    before_attention: str | None
    after_attention: str | None
    before_mlp: str | None
    after_mlp: str | None


NORMS_BEFORE: Final = NormPlacement("input_layernorm", None, "post_attention_layernorm", None)
NORMS_AFTER: Final = NormPlacement(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
NORMS_AROUND: Final = NormPlacement(
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)


class QKNorm(Enum):
    """Norm of queries and keys before rotation: none, over each head, or over all heads of a token."""

    NONE = "none"
    PER_HEAD = "per head"
    ALL_HEADS = "all heads"


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """Parameters that may differ between layers. ``window`` as in ``AttentionConfig.windows``."""

    rope: RopeConfig
    window: int | None = None


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and switches of a decoder. Defaults are those of Llama."""

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
    qk_norm: QKNorm = QKNorm.NONE
    activation: str = "silu"
    """A key of ``engine_svc.layers.activation.ACTIVATIONS``"""
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    packed: bool = False
    """Whether checkpoints store query, key and value as one matrix, and gate and up as another"""
    attention_scale: float | None = None
    attention_softcap: float | None = None
    """This and the scale as in ``engine_svc.attention.interface.AttentionConfig``"""
    logit_softcap: float | None = None
    embedding_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelLoadError(
                f"num_attention_heads {self.num_heads} must be a multiple of num_key_value_heads {self.num_kv_heads}"
            )
        for layer in self.layers:
            self._check(layer.rope)

    def _check(self, rope: RopeConfig) -> None:
        rotary_dim = int(self.head_dim * rope.partial_rotary_factor)
        if rotary_dim % 2:
            raise ModelLoadError(f"rotary dimension must be even, got {rotary_dim}")
        if isinstance(rope.scaling, PerFrequencyScaling) and len(rope.scaling.factors) != rotary_dim // 2:
            raise ModelLoadError(
                f"expected {rotary_dim // 2} rope factors, one per frequency, got {len(rope.scaling.factors)}"
            )


class RawConfig:
    """Reads config.json by name and type; null counts as absent. Raises ``ModelLoadError`` naming the field."""

    def __init__(self, values: Mapping[str, Any], where: str = "config") -> None:
        self._values = values
        self._where = where

    def with_defaults(self, **defaults: Any) -> RawConfig:
        """A copy with defaults for absent names; null stays null."""
        return RawConfig({**defaults, **self._values}, self._where)

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """An integer of at least ``minimum``."""
        value = self._typed(name, int, default)
        if value < minimum:
            raise ModelLoadError(f"{self._where}: {name} must be at least {minimum}, got {value}")
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
        """The first of these objects that is present."""
        name = next((name for name in names if self._values.get(name) is not None), None)
        return None if name is None else RawConfig(self._typed(name, dict, None), f"{self._where}.{name}")

    def text(self, *names: str) -> str | None:
        """The first of these strings that is present."""
        name = next((name for name in names if self._values.get(name) is not None), None)
        return None if name is None else self._typed(name, str, None)

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(map(float, self._typed(name, list, None)))

    def texts(self, name: str) -> tuple[str, ...] | None:
        return tuple(map(str, self._typed(name, list, None))) if self._values.get(name) is not None else None

    def require(self, name: str, supported: Any) -> None:
        """Raise unless the field is absent or has the one value that is implemented."""
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
            raise ModelLoadError(f"{self._where}: {name} must be {_JSON_TYPES[types]}, got {value!r}")
        return value
