"""What the engine knows of a compiled constraint, whoever compiled it."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Mask: TypeAlias = npt.NDArray[np.bool_]
"""Which tokens may come next [vocabulary]."""


class Matcher(Protocol):
    """The constraint of one sequence. ``output`` is always everything that the sequence has said."""

    def allowed(self, output: SequenceOf[int], *, may_end: bool) -> Mask | None:
        """What may follow ``output``; None if nothing may: the sequence is over.

        Without ``may_end`` the ending tokens are left out as long as there is anything else to say. Raises
        ``InvalidRequest`` when the constraint turns out to be too complex, or no token can go on.
        """

    def is_over(self, output: SequenceOf[int]) -> bool:
        """Whether ``output`` is complete and nothing may follow. Raises as ``allowed`` does."""


class Grammar(Protocol):
    """A compiled constraint, immutable and shared by the choices of a request."""

    def matcher(self, eos_token_ids: Collection[int], end_token_ids: Collection[int]) -> Matcher:
        """For a new sequence, which ends with any of ``end_token_ids``; only ``eos_token_ids`` may never be text."""
