from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def pellucid(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pellucid", *arguments], capture_output=True, text=True, check=False
    )  # fmt: skip


def test_every_command_has_help() -> None:
    text = pellucid("--help").stdout
    assert [name for name in ("serve", "chat") if f" {name} " not in text] == []
    for command, option in (("serve", "--model"), ("chat", "--system")):
        done = pellucid(command, "--help")
        assert done.returncode == 0
        assert option in done.stdout


def test_a_mistyped_command_is_refused() -> None:
    done = pellucid("serv")
    assert done.returncode == 2
    assert "serve" in done.stderr


def test_the_program_is_installed_under_its_name() -> None:
    program = Path(sys.executable).with_name("pellucid")
    assert subprocess.run([program, "--help"], capture_output=True, check=False).returncode == 0
