from __future__ import annotations

from pathlib import Path

import pytest

from svclib.config import SettingsError
from tokenizer_svc.config import TokenizerSettings


def test_defaults() -> None:
    settings = TokenizerSettings.load([])
    assert (settings.port, settings.metrics_port, settings.source) == (50051, 9101, "simulated")
    assert settings.chat_template is None


def test_flags_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZER_MODEL", "a")
    monkeypatch.setenv("TOKENIZER_CHAT_TEMPLATE", "t.jinja")
    settings = TokenizerSettings.load(["--workers", "2", "--max-prompt-chars=10"])
    assert (settings.source, settings.workers, settings.max_prompt_chars) == ("a", 2, 10)
    assert settings.chat_template == Path("t.jinja")


def test_the_limits_of_a_rendering() -> None:
    settings = TokenizerSettings.load(["--render-seconds", "0.5", "--render-memory-mb", "64"])
    assert (settings.render_seconds, settings.render_memory_mb) == (0.5, 64)


def test_the_tokenizer_setting_overrides_the_model() -> None:
    assert TokenizerSettings.load(["--model", "simulated", "--tokenizer", "b"]).source == "b"


@pytest.mark.parametrize(
    "flags",
    [
        ["--workers", "0"],
        ["--max-prompt-chars", "0"],
        ["--render-seconds", "0"],
        ["--render-seconds", "nan"],
        ["--render-memory-mb", "63"],
        ["--max-waiting", "-1"],
        ["--model", ""],
        ["--port", "70000"],
        ["--tokeniser", "x"],
    ],
)
def test_bad_settings(flags: list[str]) -> None:
    with pytest.raises((SettingsError, SystemExit)):
        TokenizerSettings.load(flags)
