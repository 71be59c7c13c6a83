"""N-gram (prompt-lookup) drafting: proposes the tokens that followed the same n-gram before, in prompt or output.

Quotes, edits and lists repeat earlier text, and then such draft tokens are often accepted. The acceptance rate is kept
for every length of n-gram, also for drafts that were not proposed: each new token is compared with the one that would
have been. A hash collision of two n-grams costs a wrong draft token and nothing else.
"""

from __future__ import annotations

from typing import Final

_SIZES: Final = (3, 2, 1)
"""Lengths of the n-grams that are looked up, the longest first."""

_FIRST_RATE: Final = 0.25
_RATE_WEIGHT: Final = 0.1
"""Weight of the newest draft token in its acceptance rate, which averages over about the last twenty."""

_MAX_INDEXED: Final = 16_384
"""At most this many tokens are indexed at the start, the last ones, because the step waits for it."""


class NgramDrafter:
    """An index over ``token_ids``, a list that only grows. Constant time for each new token."""

    def __init__(self, token_ids: list[int]) -> None:
        self._token_ids = token_ids
        self._num_indexed = len(token_ids)
        self._rates = dict.fromkeys(_SIZES, _FIRST_RATE)
        known, before = token_ids[-_MAX_INDEXED:], max(0, len(token_ids) - _MAX_INDEXED)
        self._followers = {size: _followers(known, size, before) for size in _SIZES}
        """For each length: from an n-gram's hash to the position of the token after its last occurrence."""
        self._tail = self._hashes_before(len(token_ids))
        self._match = self._find()

    def update(self) -> None:
        """Index the tokens appended since the last call."""
        for position in range(self._num_indexed, len(self._token_ids)):
            self._index(position)
        self._num_indexed = len(self._token_ids)

    @property
    def chance(self) -> float:
        """Probability p that a draft token is accepted, 0 without a match. P(first n accepted) = p^n."""
        return 0.0 if self._match is None else self._rates[self._match[0]]

    def propose(self, count: int) -> tuple[int, ...]:
        """The next ``count`` draft tokens; none without a match. A draft may continue by copying itself."""
        if self._match is None:
            return ()
        drafts: list[int] = []
        for position in range(self._match[1], self._match[1] + count):
            beyond = position - self._num_indexed
            drafts.append(self._token_ids[position] if beyond < 0 else drafts[beyond])
        return tuple(drafts)

    def _index(self, position: int) -> None:
        if self._match is not None:
            size, draft = self._match
            was_right = self._token_ids[draft] == self._token_ids[position]
            self._rates[size] += _RATE_WEIGHT * (was_right - self._rates[size])
        for size, ngram in self._tail:
            self._followers[size][ngram] = position
        self._tail = self._hashes_before(position + 1)
        self._match = self._find()

    def _hashes_before(self, position: int) -> list[tuple[int, int]]:
        """Length and hash of the n-grams that end right before ``position``."""
        return [(n, hash(tuple(self._token_ids[position - n : position]))) for n in _SIZES if n <= position]

    def _find(self) -> tuple[int, int] | None:
        """The longest n-gram at the end that occurred before: its length, and the position of the token after it."""
        for size, ngram in self._tail:
            if (follower := self._followers[size].get(ngram)) is not None:
                return size, follower
        return None


def _followers(token_ids: list[int], size: int, before: int) -> dict[int, int]:
    """The index of all n-grams except the last, which has no next token; ``before`` tokens precede the list."""
    ngrams = zip(*(token_ids[offset:] for offset in range(size)), strict=False)
    return dict(zip(map(hash, ngrams), range(before + size, before + len(token_ids)), strict=False))
