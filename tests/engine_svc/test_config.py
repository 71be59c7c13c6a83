from __future__ import annotations

import pytest

from engine_svc.config import Settings
from svclib.config import SettingsError


def load(monkeypatch: pytest.MonkeyPatch, *argv: str, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"ENGINE_{name}", value)
    return Settings.load(list(argv))


def test_model_is_the_only_required_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, MODEL="some/model")
    assert (settings.port, settings.metrics_port, settings.block_size) == (50052, 9102, 16)
    assert (settings.simulated, settings.model_name, settings.dtype) == (False, "model", "auto")


def test_model_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="model"):
        load(monkeypatch)
    with pytest.raises(SettingsError, match="model"):
        load(monkeypatch, MODEL="")


def test_flags_are_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(
        monkeypatch, "--model", "simulated", "--max-num-seqs=3", "--no-enable-prefix-caching", "--num-blocks=7",
        MAX_NUM_SEQS="5", SERVED_MODEL="m",
    )  # fmt: skip
    assert (settings.max_num_seqs, settings.enable_prefix_caching, settings.num_blocks) == (3, False, 7)
    assert (settings.simulated, settings.model_name) == (True, "m")


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"MODLE": "x"}, "ENGINE_MODLE"),
        ({"DTYPE": "float16"}, "dtype"),
        ({"BLOCK_SIZE": "0"}, "block_size"),
        ({"KV_CACHE_DTYPE": "int4"}, "kv_cache_dtype"),
        ({"KV_CACHE_MEMORY_MB": "0"}, "kv_cache_memory_mb"),
        ({"MAX_NUM_SEQS": "0"}, "max_num_seqs"),
        ({"MAX_WAITING": "-1"}, "max_waiting"),
        ({"STALL_SECONDS": "nan"}, "stall_seconds"),
        ({"SIMULATED_STEP_MS": "nan"}, "simulated_step_ms"),
        ({"SPECULATION": "draft_model"}, "speculation"),
        ({"NUM_SPECULATIVE_TOKENS": "0"}, "num_speculative_tokens"),
        ({"MAX_SPECULATIVE_STEP_TOKENS": "1"}, "max_speculative_step_tokens"),
    ],
    ids=str,
)
def test_invalid_settings_are_named(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        load(monkeypatch, MODEL="simulated", **variables)


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        ("simulated", "simulated_step_ms", "2.5"),
        ("simulated", "tokenizer", "/a/folder"),
        ("real", "dtype", "float32"),
        ("real", "kv_cache_dtype", "int8"),
        ("real", "num_threads", "2"),
        ("real", "deterministic", "true"),
        ("real", "max_step_ms", "50"),
        ("real", "task", "embed"),
        ("real", "speculation", "ngram"),
        ("real", "num_speculative_tokens", "4"),
        ("real", "max_speculative_step_tokens", "4"),
    ],
)
def test_a_setting_without_effect_is_an_error(
    monkeypatch: pytest.MonkeyPatch, model: str, name: str, value: str
) -> None:
    assert load(monkeypatch, MODEL=model, **{name.upper(): value}).model == model
    with pytest.raises(SettingsError, match=f"{name}: for .* only"):
        load(monkeypatch, MODEL="real" if model == "simulated" else "simulated", **{name.upper(): value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_size", "32"),
        ("enable_prefix_caching", "false"),
        ("kv_cache_dtype", "int8"),
        ("kv_cache_memory_mb", "64"),
        ("max_num_seqs", "3"),
        ("max_prefill_chunk", "64"),
        ("max_step_ms", "50"),
        ("max_waiting", "5"),
        ("num_blocks", "9"),
        ("quantization", "int8"),
        ("speculation", "ngram"),
    ],
)
def test_a_model_that_embeds_has_no_cache_and_no_sequences(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    load(monkeypatch, MODEL="real").check_embedding()
    with pytest.raises(SettingsError, match=f"{name}: for models that generate only"):
        load(monkeypatch, MODEL="real", **{name.upper(): value}).check_embedding()


def test_the_token_budget_is_at_least_max_num_seqs(monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, MODEL="real", MAX_NUM_SEQS="40", MAX_NUM_BATCHED_TOKENS="40").check_generation()
    with pytest.raises(SettingsError, match="max_num_batched_tokens must be at least max_num_seqs"):
        load(monkeypatch, MODEL="real", MAX_NUM_SEQS="41", MAX_NUM_BATCHED_TOKENS="40").check_generation()


@pytest.mark.parametrize("value", ["0", "-5", "60001", "soon"])
def test_a_step_has_a_time_that_makes_sense(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    assert load(monkeypatch, MODEL="real", MAX_STEP_MS="0.5").max_step_ms == 0.5
    with pytest.raises(SettingsError, match="max_step_ms"):
        load(monkeypatch, MODEL="real", MAX_STEP_MS=value)


def test_draft_sizes_are_errors_without_speculation(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="num_speculative_tokens: for speculation only"):
        load(monkeypatch, MODEL="real", SPECULATION="off", NUM_SPECULATIVE_TOKENS="4")


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
