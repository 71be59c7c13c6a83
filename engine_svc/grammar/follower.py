"""A matcher of llguidance that follows one output, and starts afresh when it has remembered too much."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from llguidance import LLMatcher


class Fault(Exception):
    """The matcher cannot go on; the message is llguidance's."""


class Follower:
    """Reads tokens, one after another, and has ``token_ids`` then. ``start`` has read nothing, and is never changed.

    What a matcher has seen of its lexer it keeps, up to a limit, so that the next mask is faster. One that is full is
    replaced by a fresh one that reads the same tokens; a fault is what happens to a fresh one.
    """

    def __init__(self, start: LLMatcher) -> None:
        self._start = start
        self.token_ids: list[int] = []
        self._parser = start.deep_copy()

    def read(self, token_ids: SequenceOf[int]) -> None:
        """Raises ``Fault`` for what the grammar does not allow, or no matcher can take."""
        self.token_ids += token_ids
        if token_ids and not self._parser.consume_tokens(list(token_ids)):
            self._renew()

    def mask(self) -> bytes:
        """What may come next, as bits. Raises ``Fault``."""
        bits = self._parser.compute_bitmask()
        if self._parser.is_error():
            self._renew()
            bits = self._parser.compute_bitmask()
        if self._parser.is_error():
            raise Fault(self._reason())
        return bytes(bits)

    def is_accepting(self) -> bool:
        """Whether what was read is complete."""
        return bool(self._parser.is_accepting())

    def is_over(self) -> bool:
        """Whether what was read is complete and nothing may follow."""
        return bool(self._parser.is_stopped()) and self.is_accepting()

    def ahead(self, token_ids: SequenceOf[int]) -> Follower | None:
        """Another one that has read these too; None if it cannot."""
        other = Follower(self._start)
        try:
            other.read([*self.token_ids, *token_ids])
        except Fault:
            return None
        return other

    def _renew(self) -> None:
        self._parser = self._start.deep_copy()
        if self.token_ids and not self._parser.consume_tokens(self.token_ids):
            raise Fault(self._reason())

    def _reason(self) -> str:
        return str(self._parser.get_error()).partition("\n")[0]
