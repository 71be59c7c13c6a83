"""What a command says to the person who typed it."""

from __future__ import annotations


class CommandError(Exception):
    """The command cannot do what was asked; the message says why and, where there is one, the way out."""
