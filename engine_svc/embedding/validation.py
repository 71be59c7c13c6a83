"""What an embedding may be asked for: all limits, and the checks.

``param`` names fields as the public API spells them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from engine_svc.embedding.interface import EmbedderInfo, EmbeddingParams, EmbeddingRequest, Pooling, TokenIds
from engine_svc.validation import check_token_ids
from svclib.errors import ContextLengthExceeded, InvalidRequest

MAX_INPUTS: Final = 2048
"""As in OpenAI's API."""
MAX_TOKENS: Final = 300_000
"""Of all inputs together; as in OpenAI's API."""
MAX_WAITING_TOKENS: Final = 4 * MAX_TOKENS
"""Of all requests together, running and waiting."""
MAX_VALUES: Final = 8 * 1024 * 1024
"""Numbers in an answer: half of the largest message."""


def check_pooling(name: str) -> Pooling:
    """Raises ``InvalidRequest`` when there is no such pooling."""
    match name:
        case "cls" | "mean" | "last":
            return name
    raise InvalidRequest(f"pooling must be one of {', '.join(get_args(Pooling))}, not {name[:100]!r}", param="pooling")


def check_request(request: EmbeddingRequest, info: EmbedderInfo) -> None:
    """Raises ``InvalidRequest`` naming the field that is out of bounds."""
    num_inputs = len(request.inputs)
    if num_inputs > MAX_INPUTS:
        raise InvalidRequest(f"input can hold {MAX_INPUTS} texts at most, not {num_inputs}", param="input")
    if request.num_tokens > MAX_TOKENS:
        raise InvalidRequest(
            f"input can have {MAX_TOKENS} tokens in all its texts at most, not {request.num_tokens}", param="input"
        )
    check_inputs(request.inputs, request.params, info)
    dimensions = request.params.dimensions or info.embedding_dim
    if num_inputs * dimensions > MAX_VALUES:
        raise InvalidRequest(
            f"input has {num_inputs} texts, and with {dimensions} dimensions each an answer can hold "
            f"{MAX_VALUES // dimensions} at most",
            param="input",
        )


def check_inputs(texts: Sequence[TokenIds], params: EmbeddingParams, info: EmbedderInfo) -> None:
    """Raises ``InvalidRequest`` for what the model cannot embed, however much of it there is."""
    if not texts:
        raise InvalidRequest("input is empty", param="input")
    for number, text in enumerate(texts):
        _check_text(text, number, info)
    if params.dimensions is not None and not 1 <= params.dimensions <= info.embedding_dim:
        raise InvalidRequest(
            f"dimensions must be between 1 and {info.embedding_dim}, not {params.dimensions}", param="dimensions"
        )


def _check_text(text: TokenIds, number: int, info: EmbedderInfo) -> None:
    param = f"input.{number}"
    if not text:
        raise InvalidRequest("a text has no tokens", param=param)
    if len(text) > info.max_model_len:
        raise ContextLengthExceeded(
            f"the model reads {info.max_model_len} tokens of a text at most, and this one has {len(text)}", param=param
        )
    if min(text) < 0:
        raise InvalidRequest(f"a token id cannot be negative, as {min(text)} is", param=param)
    check_token_ids(text, info.vocab_size, param=param)
