"""What an embedding is asked for, and the border to those who compute it. Knows neither protobuf nor torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from svclib.errors import ServiceError

Pooling = Literal["cls", "mean", "last"]
"""How the vectors of all tokens become one: that of the first token, their mean, that of the last token."""

TokenIds: TypeAlias = Sequence[int]
Vector: TypeAlias = npt.NDArray[np.float32]
"""[dimensions]"""


@dataclass(frozen=True, slots=True)
class EmbeddingParams:
    """What to make of the vectors of the tokens.

    ``pooling`` of None is the model's own. ``dimensions`` of None keeps all, else the first so many are kept; what is
    kept is then brought to length 1 if ``normalize`` says so.
    """

    pooling: Pooling | None = None
    normalize: bool = True
    dimensions: int | None = None


class EmbeddingInput(NamedTuple):
    """One text to be embedded."""

    token_ids: TokenIds
    params: EmbeddingParams


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts of one client, all to be embedded alike."""

    request_id: str
    inputs: tuple[TokenIds, ...]
    params: EmbeddingParams

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.inputs))

    @property
    def num_seqs(self) -> int:
        """A request is counted as one, however many texts it has."""
        return 1

    @property
    def num_slots(self) -> int:
        """One slot for each token."""
        return self.num_tokens


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """The end of the request ``group_id``: one vector for each text, in order, or an error."""

    group_id: int
    outcome: list[Vector] | ServiceError

    @property
    def is_last(self) -> bool:
        """A request has one output."""
        return True


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """What was loaded, and its limits."""

    model_path: str
    model_type: str
    dtype: str
    vocab_size: int
    max_model_len: int
    embedding_dim: int
    pooling: Pooling
    max_num_batched_tokens: int
    """Most tokens in one pass, unless a single text has more"""


class EmbeddingRunner(Protocol):
    """Computes one pass. Called by one thread at a time."""

    @property
    def info(self) -> EmbedderInfo:
        """What was loaded; does not change."""

    def execute(self, inputs: Sequence[EmbeddingInput]) -> list[Vector | Exception]:
        """One result for each input, in order; an exception is the fault of that one. Raising fails the pass."""
