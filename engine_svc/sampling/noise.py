"""Noise that is a function of (seed, choice, position, token id) and of nothing else.

So a request draws the same tokens in any batch, after a preemption, or resumed on another replica. One 64-bit key is
computed for each position with splitmix64 (Steele, Lea, Flood 2014); each token hashes it with the 32-bit mixer of
https://github.com/skeeto/hash-prospector/issues/19.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Final

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
TokenIds = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint32]

FACTORS: Final = (0x21F0AAAD, 0x735A2D97)
"""Of the mixer"""

_LOW_32: Final = np.uint64(0xFFFFFFFF)
_GOLDEN_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)


def position_keys(seeds: SequenceOf[int], choices: SequenceOf[int], positions: SequenceOf[int]) -> Keys:
    """The key of each row. ``seeds`` are below 2^64, ``positions`` are numbers of output tokens before."""
    key = np.zeros(len(seeds), np.uint64)
    for values in (seeds, choices, positions):
        key = _splitmix64(key ^ np.array(values, np.uint64))
    return key


def token_hashes(keys: Keys, token_ids: TokenIds) -> Hashes:
    """A uniform 32-bit number for each pair of a key and a token; the arrays are broadcast against each other."""
    low, high = halves(keys)
    x = token_ids.astype(np.uint32) ^ low
    x ^= x >> np.uint32(16)
    x *= np.uint32(FACTORS[0])
    x ^= high
    x ^= x >> np.uint32(15)
    x *= np.uint32(FACTORS[1])
    x ^= x >> np.uint32(15)
    return x


def halves(keys: Keys) -> tuple[Hashes, Hashes]:
    """The low and the high 32 bits of each key."""
    return (keys & _LOW_32).astype(np.uint32), (keys >> np.uint64(32)).astype(np.uint32)


def exponentials(hashes: Hashes) -> npt.NDArray[np.float64]:
    """Exponentially distributed numbers with mean 1, never zero or infinite."""
    uniform = (hashes.astype(np.float64) + 0.5) * 2.0**-32
    return -np.log1p(-uniform)


def _splitmix64(x: Keys) -> Keys:
    x = x + _GOLDEN_GAMMA
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
