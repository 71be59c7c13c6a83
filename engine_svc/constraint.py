"""What an output must match, and what the engine knows of it once it is compiled, whoever compiled it."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

ConstraintKind = Literal["json_object", "json_schema", "regex", "choice", "grammar"]

Mask: TypeAlias = npt.NDArray[np.bool_]
"""Which tokens may come next [vocabulary]."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """What an output must match, as it was asked for: ``text`` is the schema, pattern or grammar.

    ``kind`` is the field of ``SamplingParams`` in engine.proto, which says more. Only a choice has ``choices``.
    """

    kind: ConstraintKind
    text: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thinking:
    """The beginning of an output that a constraint leaves free: everything up to the closing tag.

    With ``is_open`` the output starts inside; otherwise only an output that begins with the opening tag thinks.
    """

    is_open: bool
    start_token_ids: tuple[int, ...]
    end_token_ids: tuple[int, ...]


class Matcher(Protocol):
    """The constraint of one sequence. ``output`` is always everything that the sequence has said."""

    def allowed(self, output: SequenceOf[int], *, may_end: bool) -> Mask | None:
        """What may follow ``output``; None if nothing may: the sequence is over.

        Without ``may_end`` the ending tokens are left out as long as there is anything else to say. Raises
        ``InvalidRequest`` when the constraint turns out to be too complex, or a dead end.
        """

    def is_over(self, output: SequenceOf[int]) -> bool:
        """Whether ``output`` is complete and nothing may follow. Raises as ``allowed`` does."""


class Grammar(Protocol):
    """A compiled constraint, immutable and shared by the choices of a request."""

    def matcher(self, eos_token_ids: Collection[int], end_token_ids: Collection[int]) -> Matcher:
        """For a new sequence, which ends with any of ``end_token_ids``; only ``eos_token_ids`` may never be text."""
