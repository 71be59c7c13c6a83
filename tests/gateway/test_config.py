from __future__ import annotations

import pytest

from gateway.config import Settings, split
from svclib.config import SettingsError


def load(*argv: str) -> Settings:
    return Settings.load(["--served-model-name=m", *argv])


def test_served_model_name_is_required() -> None:
    with pytest.raises(SettingsError, match="served_model_name"):
        Settings.load([])


def test_aliases_follow_the_main_name() -> None:
    assert load("--model-aliases=a, b,,m").model_names == ("m", "a", "b")
    assert load().model_names == ("m",)


def test_addresses_are_comma_lists() -> None:
    assert split(load("--engine-addresses=a:1, b:2").engine_addresses) == ("a:1", "b:2")


@pytest.mark.parametrize("wrong", ["", ",", "host", "host:", "host:port", "a:1,b", "a:123456"])
def test_bad_addresses(wrong: str) -> None:
    with pytest.raises(SettingsError, match="tokenizer_addresses"):
        load(f"--tokenizer-addresses={wrong}")


@pytest.mark.parametrize(
    "flag",
    ["--unknown-fields=maybe", "--request-timeout=0", "--max-body-bytes=0", "--max-concurrent-requests=0",
     "--sse-ping-seconds=0", "--no-such-setting=1"],
)  # fmt: skip
def test_bad_settings(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((SettingsError, SystemExit)):
        load(flag)


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_UNKNOWN_FIELDS", "reject")
    monkeypatch.setenv("GATEWAY_TOOL_PARSER", "hermes")
    assert (load().unknown_fields, load().tool_parser) == ("reject", "hermes")
    monkeypatch.setenv("GATEWAY_NO_SUCH_SETTING", "1")
    with pytest.raises(SettingsError, match="GATEWAY_NO_SUCH_SETTING"):
        load()
