"""How a format writes a call, to force a model to write it; the parser of the format accepts more than this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """A call is ``opening``, ``before_name``, the name, ``before_arguments``, a JSON object, ``closing``.

    White space is as in the models' training.
    """

    opening: str
    """Starts a call at any place, so it cannot occur in other text."""
    before_name: str
    before_arguments: str
    closing: str
    separator: str
    """Text between two calls."""

    def call(self, name: str, arguments_json: str) -> str:
        """One call."""
        return f"{self.opening}{self.before_name}{name}{self.before_arguments}{arguments_json}{self.closing}"
