"""Background jobs, which shells start with SIGINT ignored, handle SIGINT (`nohup pellucid serve &`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.pellucid.openai_server import Script, content, running
from tests.pellucid.test_serve import read_until_ready

IGNORING = ("sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pellucid")


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*IGNORING, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "300"},
    )


def ignores_sigint(process: psutil.Process) -> bool:
    (line,) = (line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "SigIgn" in line)
    return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)


def test_the_stack_stops_and_its_services_do_not_ignore_sigint() -> None:
    process = start("serve", "--model", "simulated", "--port", "0")
    read_until_ready(process)
    children = psutil.Process(process.pid).children()
    assert len(children) == 4
    assert not any(map(ignores_sigint, children))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_the_chat_ends() -> None:
    script = Script(answers=[content("half")[:1]], hold=True)
    with running(script):
        process = start("chat", "--url", script.url)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("one\ntwo\n")
        process.stdin.flush()
        assert process.stdout.read(4) == "half"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        assert process.returncode == 130
