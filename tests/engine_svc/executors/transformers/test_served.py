"""A model that is not native, served through the engine's gRPC interface."""

from __future__ import annotations

import asyncio
from pathlib import Path

import torch

from tests.engine_svc import foreign, tiny
from tests.engine_svc.serving import prompt, serving, tokens_of
from tests.numerics.test_families_greedy import NUM_TOKENS, PROMPTS, expected_output


async def test_several_requests_at_once_get_what_transformers_says(tmp_path: Path) -> None:
    model = tiny.random_model(foreign.FAMILIES["olmo3"])
    before = torch.get_num_threads()
    folder = tiny.save(model, tmp_path)
    try:
        async with serving(
            model=folder, dtype="float32", num_threads=1, num_blocks=24, block_size=4, max_prefill_chunk=8
        ) as engine:
            given = [
                prompt(tokens, eos=(), name=str(index), temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
                for index, tokens in enumerate(PROMPTS)
            ]
            answers = await asyncio.gather(*map(engine.ask, given))
    finally:
        torch.set_num_threads(before)

    assert [tokens_of(answer) for answer in answers] == [expected_output(model, tokens) for tokens in PROMPTS]
