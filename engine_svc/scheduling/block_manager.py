"""The block manager: reference counts, free blocks, and blocks that hold a cached prefix.

A block is in exactly one of three states:

    free        not in use and without known contents
    evictable   not in use, but holds a cached prefix; evicted when no free block is left, least recently used first
    used        in use by as many sequences as its reference count

Only full blocks are cached, and only once they are computed (``publish``). No tensors here: a block is a number.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable

from engine_svc.scheduling.prefix_hash import block_hash, root_hash
from engine_svc.scheduling.sequence import Sequence


class BlockManager:
    """``num_blocks`` blocks of ``block_size`` tokens each in the KV cache of ``model``."""

    def __init__(self, num_blocks: int, block_size: int, *, model: str, enable_prefix_caching: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._root = root_hash({"model": model})
        self._caching = enable_prefix_caching
        self._free = list(range(num_blocks - 1, -1, -1))
        self._evictable: OrderedDict[int, None] = OrderedDict()
        self._ref_counts = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._block_by_hash: dict[bytes, int] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be allocated now, evictable ones included."""
        return len(self._free) + len(self._evictable)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold this many tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, sequence: Sequence, *, headroom: int = 0) -> bool:
        """Allocate blocks for all tokens of a sequence without blocks, reusing its cached prefix.

        Sets ``block_table`` and ``num_computed_tokens``. False, and nothing changes, unless ``headroom`` blocks would
        stay free.
        """
        return self._assign(sequence, self._cached_prefix(sequence), headroom)

    def fork(self, parent: Sequence, child: Sequence, *, headroom: int = 0) -> bool:
        """``allocate`` for a choice whose sibling has computed its ``num_shareable_blocks`` blocks.

        They are shared by reference. The last, partial block of the prompt is not: the child computes its own.
        """
        shared = parent.block_table[: self.num_shareable_blocks(parent)]
        return self._assign(child, max(self._cached_prefix(child), shared, key=len), headroom)

    def num_shareable_blocks(self, sequence: Sequence) -> int:
        """Full blocks in the prompt without its last token, which each choice must compute to sample from."""
        return (sequence.num_prompt_tokens - 1) // self.block_size

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Extend the block table to hold this many tokens. False, and nothing changes, if too few blocks are free."""
        missing = self.blocks_for(num_tokens) - len(sequence.block_table)
        if missing > self.num_free_blocks:
            return False
        for _ in range(missing):
            sequence.block_table.append(self._take())
        return True

    def trim(self, sequence: Sequence) -> None:
        """Free the blocks beyond the known tokens, which held only draft tokens."""
        while len(sequence.block_table) > self.blocks_for(sequence.num_tokens):
            self._release(sequence.block_table.pop())

    def publish(self, sequence: Sequence, start: int) -> None:
        """Add the blocks that became full since ``start`` computed tokens to the prefix cache."""
        first, last = start // self.block_size, sequence.num_computed_tokens // self.block_size
        if not self._caching or first == last:
            return
        hashes = self._hashes_of(sequence, last)
        for block, name in zip(sequence.block_table[first:last], hashes[first:last], strict=True):
            if self._hashes[block] is None and name not in self._block_by_hash:
                self._hashes[block] = name
                self._block_by_hash[name] = block

    def free(self, sequence: Sequence) -> None:
        """Free the blocks of a sequence. Later blocks are evicted before the ones they depend on."""
        for block in reversed(sequence.block_table):
            self._release(block)
        sequence.block_table = []
        sequence.num_computed_tokens = 0

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Assert that all blocks are accounted for, given all sequences that may hold blocks."""
        users = Counter(block for sequence in sequences for block in sequence.block_table)
        used = {block for block, count in enumerate(self._ref_counts) if count}
        assert all(self._ref_counts[block] == users[block] for block in range(self.num_blocks)), "reference counts"
        assert len(set(self._free)) == len(self._free), "a block is free twice"
        assert not set(self._free) & self._evictable.keys(), "a block is free and evictable"
        assert not used & (set(self._free) | self._evictable.keys()), "a used block is free"
        assert self.num_free_blocks + len(used) == self.num_blocks, "a block is lost"
        assert all(self._hashes[block] is None for block in self._free), "a free block has contents"
        assert all(self._hashes[block] is not None for block in self._evictable), "an evictable block has none"
        named = {name: block for block, name in enumerate(self._hashes) if name is not None}
        assert named == self._block_by_hash, "the prefix cache index disagrees with the blocks"

    def _assign(self, sequence: Sequence, shared: list[int], headroom: int) -> bool:
        assert not sequence.block_table
        num_new = self.blocks_for(sequence.num_tokens) - len(shared)
        num_evictable = sum(not self._ref_counts[block] for block in shared)
        if num_new + num_evictable + headroom > self.num_free_blocks:
            return False
        for block in shared:
            self._share(block)
        sequence.block_table = [*shared, *(self._take() for _ in range(num_new))]
        sequence.num_computed_tokens = len(shared) * self.block_size
        return True

    def _cached_prefix(self, sequence: Sequence) -> list[int]:
        """The blocks of the longest cached prefix among the tokens whose logits are not needed."""
        if not self._caching:
            return []
        prefix: list[int] = []
        for name in self._hashes_of(sequence, sequence.num_skippable_tokens // self.block_size):
            block = self._block_by_hash.get(name)
            if block is None:
                break
            prefix.append(block)
        return prefix

    def _hashes_of(self, sequence: Sequence, count: int) -> list[bytes]:
        """The hashes of the first ``count`` blocks, which must be full; each is computed once."""
        hashes = sequence.block_hashes
        parent = hashes[-1] if hashes else self._root
        for index in range(len(hashes), count):
            start = index * self.block_size
            parent = block_hash(parent, sequence.token_ids[start : start + self.block_size])
            hashes.append(parent)
        return hashes[:count]

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._evictable.popitem(last=False)
            name, self._hashes[block] = self._hashes[block], None
            assert name is not None
            del self._block_by_hash[name]
        self._ref_counts[block] = 1
        return block

    def _share(self, block: int) -> None:
        if not self._ref_counts[block]:
            del self._evictable[block]
        self._ref_counts[block] += 1

    def _release(self, block: int) -> None:
        self._ref_counts[block] -= 1
        if self._ref_counts[block]:
            return
        if self._hashes[block] is None:
            self._free.append(block)
        else:
            self._evictable[block] = None
