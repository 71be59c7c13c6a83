"""Validation of embedding requests: all limits and checks.

``param`` has the field names of the public API.
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
"""Floats per response: half of the maximum gRPC message size."""


def check_pooling(name: str) -> Pooling:
    """Raises ``InvalidRequest`` if the pooling is unknown."""
    match name:
        case "cls" | "mean" | "last":
            return name
    raise InvalidRequest(f"pooling must be one of {', '.join(get_args(Pooling))}, not {name[:100]!r}", param="pooling")


def check_request(request: EmbeddingRequest, info: EmbedderInfo) -> None:
    """Raises ``InvalidRequest`` naming the field that is out of range."""
    num_inputs = len(request.inputs)
    if num_inputs > MAX_INPUTS:
        raise InvalidRequest(f"input must have at most {MAX_INPUTS} texts, got {num_inputs}", param="input")
    if request.num_tokens > MAX_TOKENS:
        raise InvalidRequest(
            f"input must have at most {MAX_TOKENS} tokens in total, got {request.num_tokens}", param="input"
        )
    check_inputs(request.inputs, request.params, info)
    dimensions = request.params.dimensions or info.embedding_dim
    if num_inputs * dimensions > MAX_VALUES:
        raise InvalidRequest(
            f"input must have at most {MAX_VALUES // dimensions} texts with {dimensions} dimensions, got {num_inputs}",
            param="input",
        )


def check_inputs(texts: Sequence[TokenIds], params: EmbeddingParams, info: EmbedderInfo) -> None:
    """Raises ``InvalidRequest`` if a text or a parameter is not valid for the model, regardless of the size limits."""
    if not texts:
        raise InvalidRequest("input is empty", param="input")
    for number, text in enumerate(texts):
        _check_text(text, number, info)
    if params.dimensions is not None and not 1 <= params.dimensions <= info.embedding_dim:
        raise InvalidRequest(
            f"dimensions must be between 1 and {info.embedding_dim}, got {params.dimensions}", param="dimensions"
        )


def _check_text(text: TokenIds, number: int, info: EmbedderInfo) -> None:
    param = f"input.{number}"
    if not text:
        raise InvalidRequest("text must have at least one token", param=param)
    if len(text) > info.max_model_len:
        raise ContextLengthExceeded(
            f"text must have at most {info.max_model_len} tokens (max_model_len), got {len(text)}", param=param
        )
    if min(text) < 0:
        raise InvalidRequest(f"token id must not be negative, got {min(text)}", param=param)
    check_token_ids(text, info.vocab_size, param=param)
