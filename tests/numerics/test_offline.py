"""Offline outputs of SmolLM2 equal the recorded outputs of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from engine_svc import LLM, SamplingParams
from tests.numerics.smollm2_greedy import CHATS, TEXTS, Greedy, recorded

NUM_TOKENS = 16
PARAMS = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, min_tokens=NUM_TOKENS)


@pytest.fixture(scope="module")
def llm(smollm2: Path) -> Iterator[LLM]:
    yield LLM(smollm2, dtype="float32", num_blocks=256)
    structlog.reset_defaults()


def expected(llm: LLM, greedy: list[Greedy]) -> list[tuple[list[int], str]]:
    truncated = [one.output[:NUM_TOKENS] for one in greedy]
    return [(token_ids, llm.get_tokenizer().decode(token_ids, skip_special_tokens=True)) for token_ids in truncated]


def test_texts(llm: LLM) -> None:
    outputs = llm.generate(TEXTS[:4], PARAMS)
    assert [(one["token_ids"], one["text"]) for one in outputs] == expected(llm, recorded()[len(CHATS) :][:4])


def test_chats(llm: LLM) -> None:
    outputs = llm.chat([[{"role": "user", "content": text}] for text in CHATS[:4]], PARAMS)
    assert [(one["token_ids"], one["text"]) for one in outputs] == expected(llm, recorded()[:4])


def test_an_output_ends_with_finish_reason_stop(llm: LLM) -> None:
    (output,) = llm.chat([{"role": "user", "content": CHATS[0]}], SamplingParams(temperature=0.0, max_tokens=None))
    assert output["text"] == "The capital of France is Paris."
    assert output["finish_reason"] == "stop"
