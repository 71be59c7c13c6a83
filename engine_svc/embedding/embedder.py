"""Computes embeddings in flat passes: texts of any lengths side by side, and nothing for padding.

Where the compiled kernels compute, a text's vector does not depend on the others in its pass. In plain torch it does by
rounding only: attention and pooling look at its own tokens, but how a matrix product is cut into pieces depends on the
number of rows.
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
    """See ``engine_svc.embedding.interface.EmbeddingRunner``. Belongs to one thread at a time."""

    def __init__(self, model: HiddenStatesModel, info: EmbedderInfo) -> None:
        self._model = model
        self._info = info

    @property
    def info(self) -> EmbedderInfo:
        return self._info

    def embed(self, texts: Sequence[TokenIds], params: EmbeddingParams | None = None) -> list[Vector]:
        """One vector for each text, in order, in as many passes as that takes. For callers without a server.

        Raises ``InvalidRequest`` when a text is empty, too long or has unknown tokens, or when the parameters do not
        suit the model, and ``ArithmeticError`` when a vector has no finite values.
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
        # Texts of one length side by side are attended in one call.
        order = sorted(range(len(inputs)), key=lambda row: len(inputs[row].token_ids))
        texts, params = zip(*(inputs[row] for row in order), strict=True)
        lengths = [len(text) for text in texts]
        hidden = self._model(torch.tensor(list(chain.from_iterable(texts))), lengths)
        vectors = embeddings(hidden, lengths, params, self._info.pooling)
        results = {row: _checked(vector) for row, vector in zip(order, vectors, strict=True)}
        return [results[row] for row in range(len(inputs))]


def split_into_passes(lengths: Sequence[int], max_num_tokens: int) -> Iterator[list[int]]:
    """Which texts are computed together: as many as have ``max_num_tokens`` tokens, or a single longer one.

    The longest come first, so that memory that does not suffice shows at once.
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
