"""Memory in transparent huge pages where available, which reduces TLB misses on weights and KV cache."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Final

import torch
from torch import Tensor

_CHUNK_BYTES: Final = 64 * 1024 * 1024
_ALIGNMENT: Final = 64
"""Bytes per cache line"""


def huge_pages(num_bytes: int) -> Tensor:
    """Zeros in huge pages, uint8 [num_bytes]"""
    if sys.platform != "linux":
        return torch.zeros(num_bytes, dtype=torch.uint8)
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a Linux kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


class Arena:
    """A bump allocator over chunks of huge pages, so that small tensors are in huge pages too."""

    def __init__(self) -> None:
        self._rest = torch.empty(0, dtype=torch.uint8)

    def take(self, num_bytes: int) -> Tensor:
        """uint8 [num_bytes], aligned to 64 bytes"""
        size = -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        if size > len(self._rest):
            self._rest = huge_pages(max(size, _CHUNK_BYTES))
        taken, self._rest = self._rest[:num_bytes], self._rest[size:]
        return taken
