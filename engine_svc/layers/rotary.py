"""Rotary position embedding, and the ways in which models stretch it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """All frequencies divided by ``factor``."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Low frequencies divided by ``factor``, high ones kept, those between interpolated (Llama 3.1)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class GivenFactors:
    """Each frequency divided by a factor of its own, as GGUF files have it."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | GivenFactors


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """``theta`` is the base of the wavelengths."""

    theta: float
    scaling: RopeScaling | None = None


class Rotation(NamedTuple):
    """Cosines and sines of the angles of a step's tokens, float32 [tokens, 1, head_dim / 2]."""

    cos: Tensor
    sin: Tensor


class RotaryEmbedding:
    """Turns positions into rotations. Has no weights."""

    def __init__(self, head_dim: int, config: RopeConfig) -> None:
        self.inv_freq = inverse_frequencies(head_dim, config)

    def __call__(self, positions: Tensor) -> Rotation:
        """``positions``: integers [tokens]"""
        angles = positions[:, None, None].float() * self.inv_freq
        return Rotation(angles.cos(), angles.sin())


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn the pairs (i, i + head_dim / 2) of each head by the angles of its token, in float32.

    [tokens, heads, head_dim] -> [tokens, heads, head_dim]
    """
    cos, sin = rotation
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def inverse_frequencies(head_dim: int, config: RopeConfig) -> Tensor:
    """Radians per position of each pair, float32 [head_dim / 2]; formulas as in transformers' modeling_rope_utils."""
    inv_freq = 1.0 / config.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    match config.scaling:
        case None:
            return inv_freq
        case LinearScaling(factor):
            return inv_freq / factor
        case GivenFactors(factors):
            return inv_freq / torch.tensor(factors, dtype=torch.float32)
        case Llama3Scaling() as scaling:
            return _llama3(inv_freq, scaling)


def _llama3(inv_freq: Tensor, scaling: Llama3Scaling) -> Tensor:
    wavelength = 2 * math.pi / inv_freq
    low, high, context = scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_position_embeddings
    smooth = ((context / wavelength - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * inv_freq / scaling.factor + smooth * inv_freq
