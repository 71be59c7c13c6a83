from __future__ import annotations

from dataclasses import replace

import pytest

from engine_svc.embedding.interface import EmbedderInfo, EmbeddingParams, EmbeddingRequest
from engine_svc.embedding.validation import MAX_INPUTS, MAX_TOKENS, MAX_VALUES, check_pooling, check_request
from svclib.errors import InvalidRequest

INFO = EmbedderInfo("m", "m", "float32", vocab_size=100, max_model_len=1000, embedding_dim=8, pooling="mean",
                    max_num_batched_tokens=64)  # fmt: skip
MAX_DIM = MAX_VALUES // MAX_INPUTS


def request(count: int, length: int = 1, dimensions: int | None = None) -> EmbeddingRequest:
    return EmbeddingRequest("r", ((7,) * length,) * count, EmbeddingParams(dimensions=dimensions))


@pytest.mark.parametrize(
    ("requested", "info"),
    [
        (request(1), INFO),
        (request(MAX_INPUTS), INFO),
        (request(MAX_TOKENS // 1000, 1000), INFO),
        (request(MAX_INPUTS), replace(INFO, embedding_dim=MAX_DIM)),
        (request(MAX_INPUTS, dimensions=MAX_DIM), replace(INFO, embedding_dim=2 * MAX_DIM)),
    ],
    ids=["one", "many", "long", "wide", "wide and cut"],
)
def test_requests_at_the_limits_are_accepted(requested: EmbeddingRequest, info: EmbedderInfo) -> None:
    check_request(requested, info)


@pytest.mark.parametrize(
    ("requested", "info", "reason"),
    [
        (request(MAX_INPUTS + 1), INFO, "at most 2048 texts, got 2049"),
        (request(MAX_TOKENS // 1000 + 1, 1000), INFO, "at most 300000 tokens in total, got 301000"),
        (request(MAX_INPUTS), replace(INFO, embedding_dim=MAX_DIM + 1), "at most 2047 texts with"),
        (request(0), INFO, "input is empty"),
    ],
    ids=["many", "long", "wide", "none"],
)
def test_requests_above_the_limits_are_refused_with_both_numbers(
    requested: EmbeddingRequest, info: EmbedderInfo, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason) as raised:
        check_request(requested, info)

    assert raised.value.param == "input"


def test_pooling_names() -> None:
    assert [check_pooling(name) for name in ("cls", "mean", "last")] == ["cls", "mean", "last"]
    with pytest.raises(InvalidRequest, match="one of cls, mean, last, not 'max'") as raised:
        check_pooling("max")
    assert raised.value.param == "pooling"
