"""Prefix cache keys: blocks with equal hashes have equal KV cache.

The KV cache of a block depends on all tokens before it, so its hash covers the parent's hash and its own tokens. The
first parent covers everything else that matters, today the model. Every field is tagged and carries its length, so no
two different inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

_ROOT_TAG: Final = b"pellucid.kv.root.v1"
_BLOCK_TAG: Final = b"pellucid.kv.block.v1"


def root_hash(fields: Mapping[str, str]) -> bytes:
    """The parent of first blocks, for example of ``{"model": "smollm2"}``; 32 bytes."""
    digest = hashlib.sha256(_ROOT_TAG)
    for name in sorted(fields):
        _update(digest, name.encode())
        _update(digest, fields[name].encode())
    return digest.digest()


def block_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The hash of a full block with these tokens after ``parent``; 32 bytes."""
    digest = hashlib.sha256(_BLOCK_TAG)
    _update(digest, parent)
    _update(digest, array("Q", token_ids).tobytes())
    return digest.digest()


def _update(digest: hashlib._Hash, value: bytes) -> None:
    digest.update(len(value).to_bytes(8, "little"))
    digest.update(value)
