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
    """Each frequency divided by a factor of its own, and the rotated vectors stretched by ``magnitude``."""

    factors: tuple[float, ...]
    magnitude: float = 1.0


RopeScaling = LinearScaling | Llama3Scaling | GivenFactors


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """``theta`` is the base of the wavelengths; the first ``fraction`` of each head is rotated."""

    theta: float
    scaling: RopeScaling | None = None
    fraction: float = 1.0


class Rotation(NamedTuple):
    """Cosines and sines of the angles of a step's tokens, float32 [tokens, 1, rotated / 2]."""

    cos: Tensor
    sin: Tensor


class RotaryEmbedding:
    """Turns positions into rotations. Has no weights."""

    def __init__(self, head_dim: int, config: RopeConfig) -> None:
        self.inv_freq = inverse_frequencies(int(head_dim * config.fraction), config)
        self.magnitude = config.scaling.magnitude if isinstance(config.scaling, GivenFactors) else 1.0

    def __call__(self, positions: Tensor) -> Rotation:
        """``positions``: integers [tokens]"""
        angles = positions[:, None, None].float() * self.inv_freq
        return Rotation(angles.cos() * self.magnitude, angles.sin() * self.magnitude)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn the pairs (i, i + rotated / 2) of each head by the angles of its token, in float32; the rest stays.

    [tokens, heads, head_dim] -> [tokens, heads, head_dim]
    """
    cos, sin = rotation
    half = cos.shape[-1]
    first, second, rest = torch.split(x.float(), [half, half, x.shape[-1] - 2 * half], dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1).to(x.dtype)


def inverse_frequencies(rotated: int, config: RopeConfig) -> Tensor:
    """Radians per position of each pair, float32 [rotated / 2]; formulas as in transformers' modeling_rope_utils.

    ``rotated`` is how many numbers of each head are rotated.
    """
    inv_freq = 1.0 / config.theta ** (torch.arange(0, rotated, 2, dtype=torch.float32) / rotated)
    match config.scaling:
        case None:
            return inv_freq
        case LinearScaling(factor):
            return inv_freq / factor
        case GivenFactors(factors=factors):
            return inv_freq / torch.tensor(factors, dtype=torch.float32)
        case Llama3Scaling() as scaling:
            return _llama3(inv_freq, scaling)


def _llama3(inv_freq: Tensor, scaling: Llama3Scaling) -> Tensor:
    wavelength = 2 * math.pi / inv_freq
    low, high, context = scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_position_embeddings
    smooth = ((context / wavelength - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * inv_freq / scaling.factor + smooth * inv_freq
