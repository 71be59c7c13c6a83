"""What the decoder must know of a model, whatever its family calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from engine_svc.layers.rotary import RopeConfig
from engine_svc.weights.errors import ModelLoadError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and switches of a decoder. ``sliding_window`` as in ``engine_svc.attention.interface.AttentionConfig``."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelLoadError(f"{self.num_heads} attention heads cannot share {self.num_kv_heads} key-value heads")
        if self.head_dim % 2:
            raise ModelLoadError(f"a head size of {self.head_dim} cannot be rotated in pairs")


class RawConfig:
    """Reads a config.json by name and type; null counts as absent. Raises ``ModelLoadError`` naming what is wrong."""

    def __init__(self, values: Mapping[str, Any], where: str = "config") -> None:
        self._values = values
        self._where = where

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number above zero."""
        value = self._typed(name, int, default)
        if value <= 0:
            raise ModelLoadError(f"{self._where}: {name} must be above 0, got {value}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._typed(name, (int, float), default)
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        return self._typed(name, bool, default)

    def optional_integer(self, name: str) -> int | None:
        return self.integer(name) if self._values.get(name) is not None else None

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
