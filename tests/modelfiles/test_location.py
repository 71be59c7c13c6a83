from __future__ import annotations

from pathlib import Path

import pytest

from modelfiles.errors import ModelFileError
from modelfiles.location import locate


def test_a_folder_with_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "other.gguf").touch()

    assert locate(str(tmp_path)) == tmp_path


def test_a_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()

    assert locate(str(tmp_path / "model.gguf")) == tmp_path / "model.gguf"


def test_a_folder_with_one_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()

    assert locate(str(tmp_path)) == tmp_path / "model.gguf"


def test_a_folder_with_two_gguf_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q4.gguf").touch()
    (tmp_path / "q8.gguf").touch()

    with pytest.raises(ModelFileError, match=r"q4\.gguf, q8\.gguf"):
        locate(str(tmp_path))


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="found: none"):
        locate(str(tmp_path))


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").touch()
    monkeypatch.setenv("HOME", str(tmp_path))

    assert locate("~/model.gguf") == tmp_path / "model.gguf"


def test_another_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "model.bin").touch()

    with pytest.raises(ModelFileError, match=r"neither a folder nor a \.gguf file"):
        locate(str(tmp_path / "model.bin"))


@pytest.mark.parametrize("model", ["", "no-such-thing", "/no/such/folder", "a/b/c", "../x y", "owner/na me"])
def test_a_path_that_does_not_exist_and_is_not_an_id(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ModelFileError):
        locate(model)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the hub's client, offline."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_an_id_that_is_in_the_cache(hub: Path) -> None:
    snapshot = hub / "models--some-org--some-model" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").touch()
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0123")

    assert locate("some-org/some-model") == snapshot


@pytest.mark.usefixtures("hub")
def test_an_id_that_cannot_be_downloaded_is_named() -> None:
    with pytest.raises(ModelFileError, match="some-org/no-model is not a local path and could not be downloaded"):
        locate("some-org/no-model")
