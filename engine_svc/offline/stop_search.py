"""Finds stop strings in one continuation as it grows, however tokens cut them."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from engine_svc.offline.text import Text

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class StopSearch:
    """``text`` is what has come so far, and once something ``matched`` what came before it.

    The stop string that is complete first counts; of those that end together, the first listed. What the first
    ``min_tokens`` tokens complete does not count.
    """

    def __init__(self, stop: SequenceOf[str], min_tokens: int, text: Text) -> None:
        self.text = ""
        self.matched = False
        self._stop = stop
        self._min_tokens = min_tokens
        self._decode = text.decode
        self._token_ids: list[int] = []
        self._start = 0
        self._end = 0

    def feed(self, token_ids: SequenceOf[int]) -> int | None:
        """How many of these tokens it took to complete a stop string; None if there is none yet."""
        for number, token_id in enumerate(token_ids, start=1):
            new = self._more_text(token_id)
            if new and self._find(new):
                return number
        return None

    def _more_text(self, token_id: int) -> str:
        """The characters that a token completes.

        Decoded behind the tokens that gave the last ones, because a token alone may lose the space before it.
        """
        self._token_ids.append(token_id)
        known = self._decode(self._token_ids[self._start : self._end])
        text = self._decode(self._token_ids[self._start :])
        if len(text) <= len(known) or text.endswith(_INCOMPLETE):
            return ""
        self._start, self._end = self._end, len(self._token_ids)
        return text[len(known) :]

    def _find(self, new: str) -> bool:
        num_old = len(self.text)
        self.text += new
        if len(self._token_ids) <= self._min_tokens:
            return False
        found = [(end, string) for string in self._stop if (end := self._end_of(string, num_old)) is not None]
        if not found:
            return False
        end, string = min(found, key=lambda pair: pair[0])
        self.text = self.text[: end - len(string)]
        self.matched = True
        return True

    def _end_of(self, string: str, num_old: int) -> int | None:
        """Where the string first ends behind ``num_old`` characters."""
        at = self.text.find(string, max(0, num_old - len(string) + 1))
        return at + len(string) if at >= 0 else None
