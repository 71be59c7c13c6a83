"""On Windows every entry point ends with the same message."""

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


def test_linux_and_macos_are_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    for platform in ("linux", "darwin"):
        monkeypatch.setattr(sys, "platform", platform)
        check_platform()


def test_the_command_names_the_supported_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match=re.escape(WHERE)):
        check_platform()


def test_installation_names_the_supported_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip runs setup.py before it resolves uvloop."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match=re.escape(WHERE)):
        runpy.run_path(str(ROOT / "setup.py"), run_name="__main__")


@pytest.mark.parametrize("module", ["pellucid.__main__", "tokenizer_svc.__main__", "svclib"])
def test_imports_fail_with_the_message(module: str) -> None:
    """Before any module is imported that Windows does not have."""
    program = f"import sys; sys.platform = 'win32'; import {module}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].removeprefix("ImportError: ") == WHERE


def test_uvloop_is_not_required_on_windows() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    (line,) = re.findall(r'"(uvloop[^"]*)"', text)
    marker = Requirement(line).marker
    assert marker is not None
    assert not marker.evaluate({"sys_platform": "win32"})
    assert marker.evaluate({"sys_platform": "darwin"})


def test_the_readme_names_the_supported_platforms() -> None:
    assert "Linux or macOS" in (ROOT / "README.md").read_text()
