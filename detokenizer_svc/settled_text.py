"""Text that is emitted only when it is settled: up to that point no later text can change it."""

from __future__ import annotations


class SettledText:
    """Unsettled text is held until settled text follows it, or until it is replaced or dropped."""

    def __init__(self) -> None:
        self._settled: list[str] = []
        """Settled, not yet taken."""
        self._held: list[str] = []

    @property
    def mark(self) -> int:
        """The current position in the held text, for ``replace_held`` and ``drop_held``."""
        return len(self._held)

    def write(self, text: str, *, settled: bool) -> None:
        """Append text; if it is ``settled``, all text before it is settled too."""
        if settled and not self._held:
            self._settled.append(text)
            return
        self._held.append(text)
        if settled:
            self._settled += self._held
            self._held.clear()

    def replace_held(self, mark: int, text: str) -> None:
        """Replace the text that was written at ``mark``."""
        self._held[mark] = text

    def drop_held(self, mark: int = 0) -> None:
        """Drop the held text from ``mark`` on."""
        del self._held[mark:]

    def take(self) -> str:
        """The settled text that has not been taken yet."""
        taken = "".join(self._settled)
        self._settled.clear()
        return taken

    def take_held(self) -> str:
        """The held text, once no more text comes."""
        held = "".join(self._held)
        self._held.clear()
        return held
