"""Constraints that were refused as too complex, so that the same one is refused at once the next time."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Final

from engine_svc.constraint import Constraint

MAX_REMEMBERED: Final = 4096
"""Hashes of 32 bytes."""


class RefusedConstraints:
    """Remembers the last ``MAX_REMEMBERED``, by hash. May be used from several threads."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, constraint: Constraint) -> bool:
        key = _hash(constraint)
        with self._lock:
            if key in self._hashes:
                self._hashes.move_to_end(key)
                return True
            return False

    def add(self, constraint: Constraint) -> None:
        key = _hash(constraint)
        with self._lock:
            self._hashes[key] = None
            self._hashes.move_to_end(key)
            if len(self._hashes) > MAX_REMEMBERED:
                self._hashes.popitem(last=False)


def _hash(constraint: Constraint) -> bytes:
    digest = hashlib.sha256(constraint.kind.encode())
    for text in (constraint.text, *constraint.choices):
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.digest()
