"""Embedding requests and outputs, and the interface of embedding runners. Independent of protobuf and torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from svclib.errors import ServiceError

Pooling = Literal["cls", "mean", "last"]
"""The vector of a text: that of its first token, the mean over its tokens, or that of its last token."""

TokenIds: TypeAlias = Sequence[int]
Vector: TypeAlias = npt.NDArray[np.float32]
"""[dimensions]"""


@dataclass(frozen=True, slots=True)
class EmbeddingParams:
    """Pooling and post-processing.

    ``pooling`` None is the default of the model. The vector is truncated to the first ``dimensions`` (None keeps all),
    then L2-normalised if ``normalize`` is set.
    """

    pooling: Pooling | None = None
    normalize: bool = True
    dimensions: int | None = None


class EmbeddingInput(NamedTuple):
    """One text to embed."""

    token_ids: TokenIds
    params: EmbeddingParams


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """The texts of one request, all with the same parameters."""

    request_id: str
    inputs: tuple[TokenIds, ...]
    params: EmbeddingParams

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.inputs))

    @property
    def num_seqs(self) -> int:
        """A request counts as one sequence, for any number of texts."""
        return 1

    @property
    def num_slots(self) -> int:
        """One slot per token."""
        return self.num_tokens


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """The outcome of the request ``group_id``: one vector per text, in order, or an error."""

    group_id: int
    outcome: list[Vector] | ServiceError

    @property
    def is_last(self) -> bool:
        """True: a request has one output."""
        return True


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """The loaded model, and its limits."""

    model_path: str
    model_type: str
    dtype: str
    vocab_size: int
    max_model_len: int
    embedding_dim: int
    pooling: Pooling
    max_num_batched_tokens: int
    """Token budget of a pass; a single text may exceed it"""


class EmbeddingRunner(Protocol):
    """Computes one pass. Called by one thread at a time."""

    @property
    def info(self) -> EmbedderInfo:
        """The loaded model; constant."""

    def execute(self, inputs: Sequence[EmbeddingInput]) -> list[Vector | Exception]:
        """One result per input, in order. A returned exception fails that input; a raised one fails the pass."""
