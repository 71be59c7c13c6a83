"""Memory in large pages, where there are such: what is read far and wide then costs fewer walks through page tables."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Final

import torch
from torch import Tensor

_CHUNK_BYTES: Final = 64 * 1024 * 1024
_ALIGNMENT: Final = 64
"""Bytes of a cache line"""


def huge_pages(num_bytes: int) -> Tensor:
    """Zeros, uint8 [num_bytes]"""
    if sys.platform != "linux":
        return torch.zeros(num_bytes, dtype=torch.uint8)
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


class Arena:
    """Hands out pieces of large pages, one after the other, so that small ones get such pages too."""

    def __init__(self) -> None:
        self._rest = torch.empty(0, dtype=torch.uint8)

    def take(self, num_bytes: int) -> Tensor:
        """uint8 [num_bytes], at a multiple of 64 bytes"""
        size = -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        if size > len(self._rest):
            self._rest = huge_pages(max(size, _CHUNK_BYTES))
        taken, self._rest = self._rest[:num_bytes], self._rest[size:]
        return taken
