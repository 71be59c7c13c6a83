"""Rotary position embedding (RoPE) and its context-extension scalings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Divides all frequencies by ``factor``."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Divides low frequencies by ``factor``, keeps high ones, interpolates between (Llama 3.1)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class PerFrequencyScaling:
    """Divides each frequency by its own factor, and multiplies cosines and sines by ``attention_factor`` (LongRoPE)."""

    factors: tuple[float, ...]
    attention_factor: float = 1.0


RopeScaling = LinearScaling | Llama3Scaling | PerFrequencyScaling


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """``theta`` is the base; the first ``partial_rotary_factor`` of each head is rotated."""

    theta: float
    scaling: RopeScaling | None = None
    partial_rotary_factor: float = 1.0


class Rotation(NamedTuple):
    """Cosines and sines for the tokens of a step, float32 [tokens, 1, rotary_dim / 2]."""

    cos: Tensor
    sin: Tensor


class RotaryEmbedding:
    """Computes the rotations for positions. Has no weights."""

    def __init__(self, head_dim: int, config: RopeConfig) -> None:
        self.inv_freq = inverse_frequencies(int(head_dim * config.partial_rotary_factor), config)
        scaling = config.scaling
        self.attention_factor = scaling.attention_factor if isinstance(scaling, PerFrequencyScaling) else 1.0

    def __call__(self, positions: Tensor) -> Rotation:
        """``positions``: integers [tokens]"""
        angles = positions[:, None, None].float() * self.inv_freq
        return Rotation(angles.cos() * self.attention_factor, angles.sin() * self.attention_factor)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate the pairs (i, i + rotary_dim / 2) of each head, in float32; dimensions from rotary_dim on are unchanged.

    [tokens, heads, head_dim] -> [tokens, heads, head_dim]
    """
    cos, sin = rotation
    half = cos.shape[-1]
    first, second, rest = torch.split(x.float(), [half, half, x.shape[-1] - 2 * half], dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1).to(x.dtype)


def inverse_frequencies(rotary_dim: int, config: RopeConfig) -> Tensor:
    """Radians per position of each pair, float32 [rotary_dim / 2]; formulas as in transformers' modeling_rope_utils.

    ``rotary_dim`` is the number of rotated dimensions of each head.
    """
    inv_freq = 1.0 / config.theta ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim)
    match config.scaling:
        case None:
            return inv_freq
        case LinearScaling(factor):
            return inv_freq / factor
        case PerFrequencyScaling(factors=factors):
            return inv_freq / torch.tensor(factors, dtype=torch.float32)
        case Llama3Scaling() as scaling:
            return _llama3(inv_freq, scaling)


def _llama3(inv_freq: Tensor, scaling: Llama3Scaling) -> Tensor:
    wavelength = 2 * math.pi / inv_freq
    low, high, context = scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_position_embeddings
    smooth = ((context / wavelength - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * inv_freq / scaling.factor + smooth * inv_freq
