"""What an output must match, and the interface of its compiled form."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

ConstraintKind = Literal["json_object", "json_schema", "regex", "choice", "grammar"]

Mask: TypeAlias = npt.NDArray[np.bool_]
"""Which tokens are allowed next [vocabulary]."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """What an output must match, as in the request: ``text`` is the schema, pattern or grammar.

    ``kind`` is the field of ``SamplingParams`` in engine.proto, which documents it. Only a choice has ``choices``.
    """

    kind: ConstraintKind
    text: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning: the unconstrained beginning of an output, up to the closing tag.

    With ``is_open`` the output starts inside it; otherwise only an output that begins with the opening tag has it.
    """

    is_open: bool
    start_token_ids: tuple[int, ...]
    end_token_ids: tuple[int, ...]


class Matcher(Protocol):
    """The constraint of one sequence. ``output`` is always the whole output of the sequence."""

    def allowed(self, output: SequenceOf[int], *, may_end: bool) -> Mask | None:
        """Which tokens may follow ``output``; None if none may: the sequence is over.

        Without ``may_end`` the mask has ending tokens only if nothing else is allowed. Raises ``InvalidRequest`` when
        the constraint becomes too complex, or is a dead end.
        """

    def is_over(self, output: SequenceOf[int]) -> bool:
        """Whether ``output`` is complete and no token is allowed after it. Raises as ``allowed`` does."""


class Grammar(Protocol):
    """A compiled constraint, immutable and shared by the choices of a request."""

    def matcher(self, eos_token_ids: Collection[int], end_token_ids: Collection[int]) -> Matcher:
        """For a new sequence, which any of ``end_token_ids`` ends; ``eos_token_ids`` are never text."""
