from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from engine_svc.kernels import build as building
from engine_svc.kernels.build import BuildError, build, library_path, main
from engine_svc.kernels.library import Kernels, load_kernels


def script(folder: Path, text: str) -> str:
    """A fake compiler that runs this shell script."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


COPY = 'for last; do :; done; echo "$0" >> "$0.calls"; echo library > "$last"'


def test_an_existing_library_is_not_rebuilt(tmp_path: Path) -> None:
    compiler = script(tmp_path, COPY)

    first = build(tmp_path / "made", compiler=compiler)
    second = build(tmp_path / "made", compiler=compiler)

    assert first == second == library_path(tmp_path / "made")
    assert first.read_text() == "library\n"
    assert len(Path(f"{compiler}.calls").read_text().splitlines()) == 1
    assert list(first.parent.iterdir()) == [first], "no temporary files are left"


def test_changed_sources_change_the_library_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = library_path()
    changed = tmp_path / "csrc"
    shutil.copytree(building._SOURCES, changed)
    monkeypatch.setattr(building, "_SOURCES", changed)

    assert library_path() == before
    (changed / "attention.cpp").write_text("int changed;")
    assert library_path() != before


def test_another_cpu_changes_the_library_path(monkeypatch: pytest.MonkeyPatch) -> None:
    before = library_path()
    monkeypatch.setattr(building, "_processor", lambda: "another")

    assert library_path() != before


def test_a_compiler_failure_has_its_message_and_leaves_no_files(tmp_path: Path) -> None:
    compiler = script(tmp_path, 'for last; do :; done; echo half > "$last"; echo "no such flag" >&2; exit 1')

    with pytest.raises(BuildError, match="no such flag"):
        build(tmp_path / "made", compiler=compiler)
    assert list((tmp_path / "made").iterdir()) == []


def test_an_unwritable_folder_is_a_build_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(BuildError):
        build(tmp_path / "file", compiler=script(tmp_path, COPY))


def test_main_exits_0_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    assert main() == 0
    assert "no C++ compiler found" in capsys.readouterr().err


def test_main_prints_nothing_if_the_library_exists(kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    assert capsys.readouterr() == ("", "")


def test_a_missing_library_is_none_and_a_damaged_one_raises(tmp_path: Path) -> None:
    (tmp_path / "kernels.so").write_text("half")

    assert load_kernels(tmp_path / "nothing.so") is None
    with pytest.raises(OSError, match=r"kernels\.so"):
        load_kernels(tmp_path / "kernels.so")
