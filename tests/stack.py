"""A stack of four processes under ``pellucid serve``, for tests and benchmarks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from openai import AsyncOpenAI, OpenAI

SERVICES = ("gateway", "tokenizer_svc", "engine_svc", "detokenizer_svc")
_URL = re.compile(r"http://[\w.\[\]:]+:\d+")


@dataclass(frozen=True, slots=True)
class Stack:
    """A running ``pellucid serve``."""

    url: str
    supervisor: psutil.Process
    log: Path

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    def client(self) -> OpenAI:
        return OpenAI(base_url=self.api, api_key="none", max_retries=0, timeout=60)

    def async_client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=self.api, api_key="none", max_retries=0, timeout=60)

    def process(self, service: str) -> psutil.Process:
        """The current process of a service."""
        for child in self.supervisor.children(recursive=True):
            try:
                if service in child.cmdline():
                    return child
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        raise LookupError(f"{service} is not running")

    def flag(self, service: str, name: str) -> str:
        """The value of a service's ``--name=value`` flag."""
        return next(word.partition("=")[2] for word in self.process(service).cmdline() if word.startswith(f"--{name}="))

    def metric(self, service: str, sample: str) -> float:
        """The sum of a metric over its labels."""
        url = f"{self.url}/metrics"
        if service != "gateway":
            url = f"http://127.0.0.1:{self.flag(service, 'metrics-port')}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        values = [float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{re.escape(sample)}[{{ ]", line)]
        assert values, f"{service} has no metric {sample}"
        return sum(values)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def wait_ready(self, seconds: float = 120) -> None:
        """Wait until the stack is ready. Fails if it exits or takes too long."""
        until = time.monotonic() + seconds
        while not self.is_ready():
            if not self.supervisor.is_running() or self.supervisor.status() == psutil.STATUS_ZOMBIE:
                raise AssertionError(f"the stack ended: {self.log.read_text()}")
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)


@contextmanager
def running_stack(*flags: str, **environment: str) -> Iterator[Stack]:
    """``pellucid serve`` with flags on a free port, ready; stopped with SIGTERM at the end."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pellucid", "serve", "--port", "0", *flags],
                stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "COLUMNS": "300", **environment},
            )  # fmt: skip
        try:
            yield _when_ready(process, log)
        finally:
            _stop(process)


def _when_ready(process: subprocess.Popen[bytes], log: Path) -> Stack:
    until = time.monotonic() + 180
    while not (found := _URL.search(_ready_line(log))):
        assert process.poll() is None, f"the stack ended: {log.read_text()}"
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    stack = Stack(found.group(), psutil.Process(process.pid), log)
    stack.wait_ready()
    return stack


def _ready_line(log: Path) -> str:
    return next((line for line in log.read_text().splitlines() if "is ready at" in line), "")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
