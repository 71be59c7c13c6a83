"""``pellucid serve`` as a person uses it, with the four real services and the simulated model."""

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
    """The command, where it ends by itself."""
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
    """Send what a curl line would send."""
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


def test_the_printed_line_is_answered(simulated: Stack) -> None:
    answer = post(curl_line(simulated.log.read_text()))
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "simulated"


def test_the_line_can_be_pasted_whatever_the_model_is_called() -> None:
    line = curl_line(banner("http://127.0.0.1:1", "Bob's `best` $model \u00e9"))
    assert json.loads(shlex.split(line)[-1])["model"] == "Bob's `best` $model \u00e9"


def test_four_processes_are_children_with_their_own_groups(simulated: Stack) -> None:
    processes = [simulated.process(service) for service in SERVICES]
    assert len({process.pid for process in processes}) == 4
    assert {process.ppid() for process in processes} == {simulated.supervisor.pid}
    assert all(os.getpgid(process.pid) == process.pid for process in processes)


def test_every_service_says_in_the_log_that_it_is_ready(simulated: Stack) -> None:
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


def test_the_chat_shows_what_the_server_refuses(simulated: Stack) -> None:
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
    """The logs of several stacks that are started at the same moment and stopped when all are ready."""
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


def test_stacks_that_start_at_the_same_moment_do_not_meet() -> None:
    for log in started_together(2):
        assert "ended" not in log
        assert "again in" not in log


@pytest.fixture
def own_stack() -> Iterator[Stack]:
    """A stack that a test may end."""
    with running_stack("--model", "simulated") as stack:
        yield stack


def test_services_die_with_a_killed_supervisor(own_stack: Stack) -> None:
    pids = [child.pid for child in own_stack.supervisor.children(recursive=True)]
    assert len(pids) >= 4
    own_stack.supervisor.kill()
    wait_until_gone(pids)


def test_a_service_comes_back_on_its_port(own_stack: Stack) -> None:
    before = own_stack.flag("engine_svc", "port")
    own_stack.process("engine_svc").kill()
    while "engine was killed by SIGKILL; starting it again" not in own_stack.log.read_text():
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
        pass  # What Linux says of a terminal that nobody has open any more.
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    wait_until_gone(children)
    assert log.index("stopping gateway") < log.index("stopping tokenizer, engine, detokenizer")
    os.close(terminal)


def test_a_taken_port_is_said_at_once_and_nothing_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = run_serve("--model", "simulated", "--port", str(port))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr


@pytest.mark.parametrize(
    ("environment", "service"),
    [
        ({"ENGINE_NO_SUCH_THING": "1"}, "engine"),
        ({"GATEWAY_REQUEST_TIMEOUT": "soon"}, "gateway"),
    ],
)
def test_a_wrong_setting_ends_everything_with_its_message_last(environment: dict[str, str], service: str) -> None:
    (name,) = environment
    done = run_serve("--model", "simulated", "--port", "0", **environment)
    assert done.returncode == 2
    last = done.stdout.splitlines()[-1]
    assert last.startswith(service)
    assert name.partition("_")[2].lower() in last.lower()


def test_a_model_that_is_not_there_is_said_at_once() -> None:
    done = run_serve("--model", "./no/such/folder")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "pellucid: there is no model at ./no/such/folder\n"


def test_a_file_that_is_no_model_ends_everything(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF and then nothing")
    done = run_serve("--model", str(file), "--port", "0")
    assert done.returncode == 2
    assert "is not a GGUF file" in done.stdout.rpartition("the last lines of")[2]


def test_sigterm_while_it_starts_ends_everything() -> None:
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
