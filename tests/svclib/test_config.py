from __future__ import annotations

from typing import Self

import pytest
from pydantic import model_validator

from svclib.config import SettingsError
from tests.svclib.echo_service import EchoSettings


def test_defaults_listen_on_loopback() -> None:
    assert EchoSettings.load([]).host == "127.0.0.1"


def test_a_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHO_PORT", "1000")
    monkeypatch.setenv("ECHO_METRICS_PORT", "1001")
    settings = EchoSettings.load(["--port", "2000"])
    assert (settings.port, settings.metrics_port) == (2000, 1001)


def test_an_unknown_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHO_PROT", "1000")
    with pytest.raises(SettingsError, match="ECHO_PROT"):
        EchoSettings.load([])


def test_variables_with_other_prefixes_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_PORT", "x")
    assert EchoSettings.load([]).port == 0


@pytest.mark.parametrize("value", ["-1", "65536", "eighty", "8.5"])
def test_a_bad_value_names_its_setting(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ECHO_PORT", value)
    with pytest.raises(SettingsError, match="port"):
        EchoSettings.load([])


class PairSettings(EchoSettings):
    @model_validator(mode="after")
    def _check(self) -> Self:
        raise ValueError("the two do not fit")


def test_a_conflict_between_settings_keeps_its_message() -> None:
    with pytest.raises(SettingsError, match=r"^the two do not fit$"):
        PairSettings.load([])


def test_an_unknown_flag_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((SettingsError, SystemExit)) as caught:
        EchoSettings.load(["--prot", "1"])
    assert "prot" in str(caught.value) + capsys.readouterr().err


def test_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        EchoSettings.load(["--help"])
    text = capsys.readouterr().out
    for name in EchoSettings.model_fields:
        assert f"--{name.replace('_', '-')}" in text


def test_settings_do_not_change_after_start() -> None:
    settings = EchoSettings.load([])
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1  # type: ignore[misc]
