"""Constraints that were refused as too complex, so that the same one is refused at once later.

Only the second refusal counts: a child process that the system killed, for want of memory say, looks like one that
exceeded its limits.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Final

from engine_svc.constraint import Constraint

MAX_REMEMBERED: Final = 4096
"""Hashes of 32 bytes."""
MIN_REFUSALS: Final = 2


class RefusedConstraints:
    """Remembers the last ``MAX_REMEMBERED``, by hash. May be used from several threads."""

    def __init__(self) -> None:
        self._num_refusals: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, constraint: Constraint) -> bool:
        key = _hash(constraint)
        with self._lock:
            if key in self._num_refusals:
                self._num_refusals.move_to_end(key)
            return self._num_refusals.get(key, 0) >= MIN_REFUSALS

    def add(self, constraint: Constraint) -> None:
        key = _hash(constraint)
        with self._lock:
            self._num_refusals[key] = self._num_refusals.get(key, 0) + 1
            self._num_refusals.move_to_end(key)
            if len(self._num_refusals) > MAX_REMEMBERED:
                self._num_refusals.popitem(last=False)


def _hash(constraint: Constraint) -> bytes:
    digest = hashlib.sha256(constraint.kind.encode())
    for text in (constraint.text, *constraint.choices):
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.digest()
