"""What an output must match, and the interface of a compiled constraint. ``grammar/`` implements it."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

ConstraintKind = Literal["json_object", "json_schema", "regex", "choice", "grammar"]

Mask: TypeAlias = npt.NDArray[np.bool_]
"""Which tokens are allowed next, [vocab_size]"""


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
    """Reasoning at the start of an output, which is unconstrained up to the closing tag.

    With ``is_open`` the output starts inside it; otherwise only an output that begins with the opening tag reasons.
    """

    is_open: bool
    start_token_ids: tuple[int, ...]
    end_token_ids: tuple[int, ...]


class Matcher(Protocol):
    """The constraint of one sequence. ``output`` is always all output tokens of the sequence."""

    def allowed(self, output: SequenceOf[int], *, may_end: bool) -> Mask | None:
        """The tokens allowed after ``output``; None if no token is: the sequence ends.

        Without ``may_end`` the tokens that end the sequence are masked as long as another token is allowed. Raises
        ``InvalidRequest`` if the constraint is too complex, or a dead end.
        """

    def is_over(self, output: SequenceOf[int]) -> bool:
        """Whether ``output`` is complete and no token is allowed after it. Raises as ``allowed`` does."""


class Grammar(Protocol):
    """A compiled constraint, immutable and shared by the choices of a request."""

    def matcher(self, eos_token_ids: Collection[int], end_token_ids: Collection[int]) -> Matcher:
        """For a new sequence, which ends with any of ``end_token_ids``; ``eos_token_ids`` are never text."""
