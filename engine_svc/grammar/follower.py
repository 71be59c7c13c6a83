"""A matcher of llguidance that follows one output, and is replaced when its lexer states are used up."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from llguidance import LLMatcher


class Fault(Exception):
    """The matcher cannot continue; the message is llguidance's."""


class Follower:
    """Reads tokens, which it keeps in ``token_ids``. ``start`` has read nothing, and is never changed.

    A matcher caches lexer states, up to a limit, so that later masks are faster. A full one is replaced by a fresh one
    that reads the same tokens; only an error of the fresh one is a ``Fault``.
    """

    def __init__(self, start: LLMatcher) -> None:
        self._start = start
        self.token_ids: list[int] = []
        self._parser = start.deep_copy()

    def read(self, token_ids: SequenceOf[int]) -> None:
        """Raises ``Fault`` for tokens that the grammar does not allow, or that exceed the limits."""
        self.token_ids += token_ids
        if token_ids and not self._parser.consume_tokens(list(token_ids)):
            self._renew()

    def mask(self) -> bytes:
        """Which tokens may come next, as bits. Raises ``Fault``."""
        bits = self._parser.compute_bitmask()
        if self._parser.is_error():
            self._renew()
            bits = self._parser.compute_bitmask()
        if self._parser.is_error():
            raise Fault(self._reason())
        return bytes(bits)

    def is_accepting(self) -> bool:
        """Whether the output so far is complete."""
        return bool(self._parser.is_accepting())

    def is_over(self) -> bool:
        """Whether the output so far is complete and nothing may follow."""
        return bool(self._parser.is_stopped()) and self.is_accepting()

    def ahead(self, token_ids: SequenceOf[int]) -> Follower | None:
        """Another follower that has read these tokens too; None if they are not allowed."""
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
