from __future__ import annotations

import json
import signal
import subprocess
import sys

from grpc_health.v1 import health_pb2, health_pb2_grpc

from svclib.channel import connect
from tests.svclib.test_server import service

FAULT = """
import logging, sys
import structlog
from svclib import logging as ours
from tests.svclib.echo_service import EchoSettings

ours.configure(EchoSettings.load(sys.argv[1:]), "echo")
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger().exception("it broke")
logging.getLogger("a.library").warning("from %s", "a library")
"""


def logged(*flags: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", FAULT, *flags], check=True, capture_output=True, text=True
    ).stderr  # fmt: skip


def test_json_logs_an_exception_on_one_line() -> None:
    first, second = map(json.loads, logged().splitlines())
    assert (first["event"], first["level"], first["service"]) == ("it broke", "error", "echo")
    assert first["exception"].endswith("ZeroDivisionError: division by zero")
    assert (second["event"], second["level"], second["service"]) == ("from a library", "warning", "echo")


def test_console_logs_an_exception_as_python_prints_it() -> None:
    text = logged("--log-format", "console")
    assert "it broke" in text
    assert "Traceback (most recent call last):" in text
    assert text.splitlines()[-2] == "ZeroDivisionError: division by zero"
    assert "\x1b" not in text


def test_the_log_level_applies_to_libraries() -> None:
    assert "library" not in logged("--log-level", "error")


async def test_an_open_health_watch_at_shutdown_logs_no_error() -> None:
    async with service() as running, connect((await running.wait_for("started"))["address"]) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await anext(aiter(watch))).status
        await running.wait_for("serving")
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0
        assert not [line for line in running.lines if '"error"' in line]
