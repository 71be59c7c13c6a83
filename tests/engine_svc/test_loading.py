from __future__ import annotations

from pathlib import Path

import pytest

from engine_svc.config import Settings
from engine_svc.execution.runner import RunnerInfo
from engine_svc.loading import load_runner
from protos import simulated
from svclib.config import SettingsError


def test_a_simulated_model_by_default() -> None:
    assert load_runner(Settings(model="simulated")).info == RunnerInfo(
        model_path="simulated",
        model_type="simulated",
        dtype="float32",
        vocab_size=simulated.VOCAB_SIZE,
        max_model_len=8192,
        num_blocks=4096,
        eos_token_ids=(simulated.EOS_TOKEN_ID,),
        simulated=True,
    )


@pytest.mark.parametrize(
    ("memory", "block_size", "num_blocks", "expected"),
    [(1, 16, None, 8), (1, 32, None, 4), (1, 1024, None, 1), (1, 16, 3, 3), (512, 1, None, 65536)],
)
def test_memory_means_blocks(memory: int, block_size: int, num_blocks: int | None, expected: int) -> None:
    settings = Settings(model="simulated", kv_cache_memory_mb=memory, block_size=block_size, num_blocks=num_blocks)
    assert load_runner(settings).info.num_blocks == expected


def test_the_context_can_be_set() -> None:
    assert load_runner(Settings(model="simulated", max_model_len=50)).info.max_model_len == 50


def test_real_weights_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        load_runner(Settings(model=str(tmp_path / "nothing")))
