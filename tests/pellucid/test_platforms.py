"""On Windows everything that a person may try first ends with the same sentence."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pellucid.platforms import WHERE, check_platform

ROOT = Path(__file__).parents[2]


def test_linux_and_macos_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    for platform in ("linux", "darwin"):
        monkeypatch.setattr(sys, "platform", platform)
        check_platform()


def test_the_command_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match=re.escape(WHERE)):
        check_platform()


def test_installation_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip runs before it looks for uvloop."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match=re.escape(WHERE)):
        runpy.run_path(str(ROOT / "setup.py"), run_name="__main__")


@pytest.mark.parametrize("module", ["pellucid.__main__", "tokenizer_svc.__main__", "svclib"])
def test_imports_end_with_the_sentence(module: str) -> None:
    """Before anything that Windows does not have is asked for."""
    program = f"import sys; sys.platform = 'win32'; import {module}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].removeprefix("ImportError: ") == WHERE


def test_what_windows_cannot_build_is_not_asked_of_it() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    (line,) = re.findall(r'"(uvloop[^"]*)"', text)
    marker = Requirement(line).marker
    assert marker is not None
    assert not marker.evaluate({"sys_platform": "win32"})
    assert marker.evaluate({"sys_platform": "darwin"})


def test_the_readme_says_it_too() -> None:
    assert "Linux or macOS" in (ROOT / "README.md").read_text()
