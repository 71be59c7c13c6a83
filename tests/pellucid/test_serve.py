"""``pellucid serve`` as a user runs it, with the four real services and the simulated model."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from pellucid.serve import banner
from tests.pellucid.children import wait_until_gone
from tests.stack import SERVICES, Stack, running_stack

SERVE = (sys.executable, "-m", "pellucid", "serve")


def run_serve(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command until it exits."""
    return subprocess.run(
        [*SERVE, *flags],
        env={**os.environ, "COLUMNS": "300", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def post(curl_line: str) -> dict[str, object]:
    """Send the request of a curl line."""
    words = shlex.split(curl_line)
    assert words[0] == "curl"
    name, _, value = words[words.index("-H") + 1].partition(": ")
    body = words[words.index("-d") + 1].encode()
    with urllib.request.urlopen(urllib.request.Request(words[1], data=body, headers={name: value})) as answer:
        answered: dict[str, object] = json.load(answer)
    return answered


def curl_line(log: str) -> str:
    (line,) = (line for line in log.splitlines() if line.strip().startswith("curl "))
    return line


def test_the_printed_curl_line_works(simulated: Stack) -> None:
    answer = post(curl_line(simulated.log.read_text()))
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "simulated"


def test_the_curl_line_quotes_any_model_name() -> None:
    line = curl_line(banner("http://127.0.0.1:1", "Bob's `best` $model \u00e9"))
    assert json.loads(shlex.split(line)[-1])["model"] == "Bob's `best` $model \u00e9"


def test_the_four_services_are_children_with_their_own_process_groups(simulated: Stack) -> None:
    processes = [simulated.process(service) for service in SERVICES]
    assert len({process.pid for process in processes}) == 4
    assert {process.ppid() for process in processes} == {simulated.supervisor.pid}
    assert all(os.getpgid(process.pid) == process.pid for process in processes)


def test_the_log_says_when_each_service_is_ready(simulated: Stack) -> None:
    log = simulated.log.read_text()
    for name in ("gateway", "tokenizer", "engine", "detokenizer"):
        assert re.search(rf"^pellucid +\| {name} started, pid \d+$", log, re.MULTILINE)
        assert re.search(rf"^pellucid +\| {name} is ready$", log, re.MULTILINE)


def test_the_chat_talks_to_the_stack(simulated: Stack) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pellucid", "chat", "--url", simulated.url, "--max-tokens", "12", "--seed", "3"],
        input="hello\n/reset\nhello\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.split("\n")[:2]
    assert first
    assert first == second


def test_the_chat_shows_the_servers_errors(simulated: Stack) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pellucid", "chat", "--url", simulated.url, "--model", "absent"],
        input="hello\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "absent" in done.stderr
    assert "(HTTP 404)" in done.stderr


def started_together(count: int) -> list[str]:
    """The logs of several stacks that start at the same moment and stop when all are ready."""
    processes = [
        subprocess.Popen(
            [*SERVE, "--model", "simulated", "--port", "0"],
            env={**os.environ, "COLUMNS": "300"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(count)
    ]
    with ThreadPoolExecutor(count) as pool:
        logs = list(pool.map(read_until_ready, processes))
        for process in processes:
            process.terminate()
        rests = list(pool.map(lambda process: process.communicate()[0], processes))
    assert [process.returncode for process in processes] == [0] * count
    return [log + rest for log, rest in zip(logs, rests, strict=True)]


def read_until_ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    log = ""
    while " chat --url " not in log:
        line = process.stdout.readline()
        assert line, log
        log += line
    return log


def test_stacks_that_start_at_the_same_moment_do_not_conflict() -> None:
    for log in started_together(2):
        assert "ended" not in log
        assert "restarting" not in log


@pytest.fixture
def own_stack() -> Iterator[Stack]:
    """A stack that a test may stop."""
    with running_stack("--model", "simulated") as stack:
        yield stack


def test_services_die_with_a_killed_supervisor(own_stack: Stack) -> None:
    pids = [child.pid for child in own_stack.supervisor.children(recursive=True)]
    assert len(pids) >= 4
    own_stack.supervisor.kill()
    wait_until_gone(pids)


def test_a_killed_service_restarts_on_its_port(own_stack: Stack) -> None:
    before = own_stack.flag("engine_svc", "port")
    own_stack.process("engine_svc").kill()
    while "engine was killed by SIGKILL; restarting in" not in own_stack.log.read_text():
        assert own_stack.supervisor.is_running()
        time.sleep(0.02)
    own_stack.wait_ready()
    assert own_stack.flag("engine_svc", "port") == before
    assert post(curl_line(own_stack.log.read_text()))["object"] == "chat.completion"


def test_running_streams_finish_when_ctrl_c_is_pressed(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"COLUMNS": "300", "TERM": "dumb"}
        os.execv(SERVE[0], [*SERVE, "--model", "simulated", "--port", "0"])
    log = ""
    while not (found := re.search(r"is ready at (http://[\w.:]+)/v1", log)):
        log += os.read(terminal, 4096).decode(errors="replace")
    children = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    steps = {"steps": ["tick "], "repeat": 40, "delay_ms": 25}
    body = {"model": "simulated", "messages": [{"role": "user", "content": "hi"}], "stream": True, "simulate": steps}
    request = urllib.request.Request(
        f"{found[1]}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.readline().startswith(b"data: ")
        os.write(terminal, b"\x03")
        rest = answer.read().decode()
    assert rest.endswith("data: [DONE]\n\n")
    assert rest.count("tick") == 40
    try:
        while data := os.read(terminal, 4096):
            log += data.decode(errors="replace")
    except OSError:
        pass  # Linux reports a closed pseudo-terminal as an error.
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    wait_until_gone(children)
    assert log.index("stopping gateway") < log.index("stopping tokenizer, engine, detokenizer")
    os.close(terminal)


def test_with_an_http_port_in_use_nothing_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = run_serve("--model", "simulated", "--port", str(port))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"port {port} on 127.0.0.1 is already in use" in done.stderr


@pytest.mark.parametrize(
    ("environment", "service"),
    [
        ({"ENGINE_NO_SUCH_THING": "1"}, "engine"),
        ({"GATEWAY_REQUEST_TIMEOUT": "soon"}, "gateway"),
    ],
)
def test_an_invalid_setting_stops_the_stack_with_its_message_last(environment: dict[str, str], service: str) -> None:
    (name,) = environment
    done = run_serve("--model", "simulated", "--port", "0", **environment)
    assert done.returncode == 2
    last = done.stdout.splitlines()[-1]
    assert last.startswith(service)
    assert name.partition("_")[2].lower() in last.lower()


@pytest.mark.parametrize(("option", "value"), [("max-step-ms", "50"), ("kv-cache-dtype", "int8")])
def test_options_for_models_with_weights_reach_the_engine(option: str, value: str) -> None:
    done = run_serve("--model", "simulated", "--port", "0", f"--{option}", value)
    assert done.returncode == 2
    assert f"{option.replace('-', '_')}: for models with weights only" in done.stdout.splitlines()[-1]


def test_a_missing_model_is_an_error_before_anything_starts() -> None:
    done = run_serve("--model", "./no/such/folder")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "pellucid: no such file or folder: ./no/such/folder\n"


def test_an_invalid_model_file_stops_the_stack(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF and then nothing")
    done = run_serve("--model", str(file), "--port", "0")
    assert done.returncode == 2
    assert "is not a GGUF file" in done.stdout.rpartition("last lines of")[2]


def test_sigterm_during_start_stops_the_stack() -> None:
    process = subprocess.Popen(
        [*SERVE, "--model", "simulated", "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    log = ""
    while "detokenizer started" not in log:
        log += process.stdout.readline()
    pids = [int(pid) for pid in re.findall(r"started, pid (\d+)", log)]
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0
    wait_until_gone(pids)
