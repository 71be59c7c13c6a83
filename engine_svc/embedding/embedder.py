"""Computes embeddings in passes over flat batches: texts of any length, without padding.

With the compiled kernels, the vector of a text does not depend on the other texts in its pass. In plain torch it
depends on them by rounding only: attention and pooling read only its own tokens, but a matrix product may be tiled
differently for another number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import torch

from engine_svc.embedding.hidden_states import HiddenStatesModel
from engine_svc.embedding.interface import EmbedderInfo, EmbeddingInput, EmbeddingParams, TokenIds, Vector
from engine_svc.embedding.pooling import embeddings
from engine_svc.embedding.validation import check_inputs


class Embedder:
    """See ``engine_svc.embedding.interface.EmbeddingRunner``. Not thread-safe: one thread at a time."""

    def __init__(self, model: HiddenStatesModel, info: EmbedderInfo) -> None:
        self._model = model
        self._info = info

    @property
    def info(self) -> EmbedderInfo:
        return self._info

    def embed(self, texts: Sequence[TokenIds], params: EmbeddingParams | None = None) -> list[Vector]:
        """One vector per text, in order, in as many passes as needed. For use without a server.

        Raises ``InvalidRequest`` if a text is empty, too long or has unknown tokens, or if the model does not support
        the parameters; ``ArithmeticError`` if a vector is not finite.
        """
        given = EmbeddingParams() if params is None else params
        check_inputs(texts, given, self._info)
        found: list[Vector | None] = [None] * len(texts)
        for rows in split_into_passes([len(text) for text in texts], self._info.max_num_batched_tokens):
            results = self.execute([EmbeddingInput(texts[row], given) for row in rows])
            for row, result in zip(rows, results, strict=True):
                if isinstance(result, Exception):
                    raise result
                found[row] = result
        return [vector for vector in found if vector is not None]

    @torch.inference_mode()
    def execute(self, inputs: Sequence[EmbeddingInput]) -> list[Vector | Exception]:
        # Sorted, because adjacent texts of equal length share one call of attention.
        order = sorted(range(len(inputs)), key=lambda row: len(inputs[row].token_ids))
        texts, params = zip(*(inputs[row] for row in order), strict=True)
        lengths = [len(text) for text in texts]
        hidden = self._model(torch.tensor(list(chain.from_iterable(texts))), lengths)
        vectors = embeddings(hidden, lengths, params, self._info.pooling)
        results = {row: _checked(vector) for row, vector in zip(order, vectors, strict=True)}
        return [results[row] for row in range(len(inputs))]


def split_into_passes(lengths: Sequence[int], max_num_tokens: int) -> Iterator[list[int]]:
    """Indices of the texts of each pass: up to ``max_num_tokens`` tokens in total, or a single longer text.

    The longest texts come first, so that out of memory occurs in the first pass.
    """
    rows: list[int] = []
    num_tokens = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if rows and num_tokens + lengths[row] > max_num_tokens:
            yield rows
            rows, num_tokens = [], 0
        rows.append(row)
        num_tokens += lengths[row]
    if rows:
        yield rows


def _checked(vector: torch.Tensor) -> Vector | Exception:
    if not vector.isfinite().all():
        return ArithmeticError("the embedding is not finite")
    return vector.numpy()
