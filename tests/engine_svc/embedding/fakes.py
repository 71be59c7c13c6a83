"""Fake embedding runners: the vector of a text is computed from its tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from engine_svc.embedding.interface import EmbedderInfo, EmbeddingInput, EmbeddingParams, EmbeddingRequest, Vector

INFO = EmbedderInfo("fake", "bert", "float32", vocab_size=100, max_model_len=30, embedding_dim=2, pooling="mean",
                    max_num_batched_tokens=20)  # fmt: skip
BAD_TOKEN = 99


class FakeRunner:
    """The vector of a text is the sum of its tokens and its length; a text with token 99 fails."""

    def __init__(self) -> None:
        self.info = INFO
        self.passes: list[list[EmbeddingInput]] = []

    def execute(self, inputs: Sequence[EmbeddingInput]) -> list[Vector | Exception]:
        self.passes.append(list(inputs))
        return [ValueError("a bad text") if BAD_TOKEN in token_ids else vector_of(token_ids) for token_ids, _ in inputs]

    @property
    def texts(self) -> list[Sequence[int]]:
        """All computed texts, in order."""
        return [token_ids for inputs in self.passes for token_ids, _ in inputs]


class BlockingRunner(FakeRunner):
    """Each pass blocks until ``go`` is released."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def execute(self, inputs: Sequence[EmbeddingInput]) -> list[Vector | Exception]:
        self.begun.release()
        assert self.go.acquire(timeout=60)
        return super().execute(inputs)


class Failing(FakeRunner):
    """The first ``times`` passes fail."""

    def __init__(self, *, times: int) -> None:
        super().__init__()
        self.times = times

    def execute(self, inputs: Sequence[EmbeddingInput]) -> list[Vector | Exception]:
        if self.times:
            self.times -= 1
            raise RuntimeError("out of memory")
        return super().execute(inputs)


class PanicException(BaseException):
    """As raised by pyo3."""


class Panicking(FakeRunner):
    def execute(self, inputs: Sequence[EmbeddingInput]) -> list[Vector | Exception]:
        raise PanicException("index out of bounds")


def vector_of(token_ids: Sequence[int]) -> Vector:
    return np.array([sum(token_ids), len(token_ids)], np.float32)


def request(*texts: Sequence[int], name: str = "r") -> EmbeddingRequest:
    return EmbeddingRequest(name, texts, EmbeddingParams())
