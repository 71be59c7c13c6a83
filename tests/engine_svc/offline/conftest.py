"""A tiny model with random weights and SmolLM2's vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_svc import LLM
from engine_svc.offline.text import Text, load_text
from tests.engine_svc import tiny


@pytest.fixture(scope="session")
def tiny_folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    load_text(str(smollm2)).tokenizer.save_pretrained(folder)
    return tiny.save(tiny.random_model(tiny.llama(vocab_size=49152, max_position_embeddings=256)), folder)


@pytest.fixture(scope="session")
def llm(tiny_folder: str) -> LLM:
    return LLM(tiny_folder, dtype="float32", num_threads=1, num_blocks=128, block_size=4, max_num_seqs=4)


@pytest.fixture(scope="session")
def text(llm: LLM) -> Text:
    return llm._text
