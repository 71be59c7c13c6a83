"""How a format is written, for whoever makes a model write it; the parser beside it reads more than this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """A call is ``opening``, ``before_name``, the name, ``before_arguments``, a JSON object, ``closing``.

    It is written as the models were trained to write it, white space included.
    """

    opening: str
    """Begins a call wherever it stands, so that it stands nowhere else."""
    before_name: str
    before_arguments: str
    closing: str
    separator: str
    """Between two calls."""

    def call(self, name: str, arguments_json: str) -> str:
        """One call."""
        return f"{self.opening}{self.before_name}{name}{self.before_arguments}{arguments_json}{self.closing}"
