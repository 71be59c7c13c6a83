from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from engine_svc.config import Settings
from engine_svc.embedding.interface import EmbedderInfo
from engine_svc.loading import limits_of, load_model, load_runner, pace_of, speculation_of
from engine_svc.runners.interface import RunnerInfo
from engine_svc.scheduling.speculation import Speculation
from engine_svc.scheduling.step import StepLimits
from protos import simulated
from svclib.config import SettingsError
from tests.engine_svc import tiny, tiny_encoders


def test_a_simulated_model_by_default() -> None:
    assert load_runner(Settings(model="simulated")).info == RunnerInfo(
        model_path="simulated",
        model_type="simulated",
        dtype="float32",
        cache_dtype="float32",
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


@pytest.mark.parametrize(
    ("speculation", "batch_invariant", "expected"),
    [("auto", True, True), ("auto", False, False), ("ngram", False, True), ("off", True, False)],
)
def test_by_default_batch_invariant_models_speculate(
    speculation: Literal["auto", "ngram", "off"], batch_invariant: bool, expected: bool
) -> None:
    info = RunnerInfo("m", "m", "float32", "float32", 9, 9, 9, (0,), batch_invariant=batch_invariant)

    found = speculation_of(Settings(model="real", speculation=speculation), info)

    assert found == (Speculation(num_tokens=8, max_step_tokens=32) if expected else None)


def test_the_number_of_draft_tokens_can_be_set() -> None:
    settings = Settings(model="real", speculation="ngram", num_speculative_tokens=3, max_speculative_step_tokens=9)
    info = RunnerInfo("m", "m", "float32", "float32", 9, 9, 9, (0,))

    assert speculation_of(settings, info) == Speculation(num_tokens=3, max_step_tokens=9)


def test_by_default_a_chunk_is_limited_by_the_token_budget_alone() -> None:
    assert limits_of(Settings(model="real")) == StepLimits(64, 512, 512)
    assert limits_of(Settings(model="real", max_prefill_chunk=100)) == StepLimits(64, 512, 100)


def test_steps_of_real_models_are_bounded_in_time() -> None:
    info = RunnerInfo("m", "m", "float32", "float32", 9, 9, 9, (0,))

    by_default, given = pace_of(Settings(model="real"), info), pace_of(Settings(model="real", max_step_ms=40), info)

    assert by_default is not None
    assert by_default.max_seconds is None
    assert given is not None
    assert given.max_seconds == 0.04
    assert pace_of(Settings(model="simulated"), replace(info, simulated=True)) is None


def test_real_weights_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        load_runner(Settings(model=str(tmp_path / "nothing")))


def test_a_model_is_loaded_for_its_task(tmp_path: Path) -> None:
    encoder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.bert()), tmp_path / "encoder")
    decoder = tiny.save(tiny.random_model(tiny.llama()), tmp_path / "decoder")

    assert isinstance(load_model(Settings(model=encoder)).info, EmbedderInfo)
    assert isinstance(load_model(Settings(model=decoder, task="embed")).info, EmbedderInfo)
    assert isinstance(load_model(Settings(model=decoder, num_blocks=4)).info, RunnerInfo)
    assert isinstance(load_model(Settings(model="simulated")).info, RunnerInfo)


def test_an_embedding_model_is_loaded_as_the_settings_say(tmp_path: Path) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.bert()), tmp_path)

    info = load_model(Settings(model=folder, dtype="bfloat16", max_model_len=20, max_num_batched_tokens=100)).info

    assert isinstance(info, EmbedderInfo)
    assert (info.dtype, info.max_model_len, info.max_num_batched_tokens) == ("bfloat16", 20, 100)


def test_a_small_pass_is_for_embedding_models_only(tmp_path: Path) -> None:
    encoder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.bert()), tmp_path)

    assert load_model(Settings(model=encoder, max_num_batched_tokens=8)).info.max_model_len == 48
    with pytest.raises(SettingsError, match="max_num_batched_tokens must be at least max_num_seqs"):
        load_model(Settings(model="simulated", max_num_batched_tokens=8))


def test_a_setting_without_effect_on_an_embedding_model_is_refused(tmp_path: Path) -> None:
    folder = tiny.save(tiny_encoders.random_encoder(tiny_encoders.bert()), tmp_path)

    with pytest.raises(SettingsError, match="num_blocks: for models that generate only"):
        load_model(Settings(model=folder, num_blocks=9))
