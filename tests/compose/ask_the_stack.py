"""Builds the images, starts the stack with Docker Compose, sends one request, and removes the stack.

Run by ``make test-compose``. Without a Docker engine with Compose it prints so and succeeds.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = "pellucid-test"
SERVICES: Final = ("gateway", "tokenizer", "engine", "detokenizer")
QUESTION: Final = "What is the capital of France?"
READY_SECONDS: Final = 600
ANSWER_SECONDS: Final = 120


def reason_to_skip() -> str:
    """Why the test cannot run here; empty if it can."""
    if shutil.which("docker") is None:
        return "docker not found"
    for command in (("docker", "info"), ("docker", "compose", "version")):
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return f"`{' '.join(command)}` fails"
    return ""


def compose(*arguments: str, port: int) -> str:
    environment = {**os.environ, "PORT": str(port), "MODEL": "", "SERVED_MODEL_NAME": ""}
    command = ("docker", "compose", "--project-name", PROJECT, *arguments)
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextmanager
def stack() -> Iterator[int]:
    """The port of a running stack. Containers and volumes are removed at the end."""
    port = free_port()
    try:
        compose("up", "--build", "--detach", "--wait", "--wait-timeout", str(READY_SECONDS), port=port)
        yield port
    except BaseException:
        print(compose("logs", "--no-color", "--tail", "50", port=port), file=sys.stderr)
        raise
    finally:
        compose("down", "--volumes", port=port)


def ask(port: int) -> str:
    body = {
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 64,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def inspected(port: int) -> dict[str, dict[str, object]]:
    """``docker inspect`` of each container, by service."""
    found = {}
    for name in SERVICES:
        identity = compose("ps", "--all", "--quiet", name, port=port).strip()
        described = subprocess.run(("docker", "inspect", identity), check=True, stdout=subprocess.PIPE).stdout
        found[name] = json.loads(described)[0]
    return found


def check_containers(port: int) -> None:
    """No container runs as root or has a writable root; only the gateway has a published port, on 127.0.0.1."""
    for name, container in inspected(port).items():
        config, host = container["Config"], container["HostConfig"]
        assert isinstance(config, dict)
        assert isinstance(host, dict)
        assert config["User"] == "10001:10001", name
        assert host["ReadonlyRootfs"], name
        assert host["CapDrop"] == ["ALL"], name
        bindings = host["PortBindings"] or {}
        expected = {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]} if name == "gateway" else {}
        assert bindings == expected, name


def check_kernels(port: int) -> None:
    """The engine compiled its kernels, with a read-only root."""
    assert "Built the engine's kernels" in compose("logs", "--no-color", "engine", port=port)


def check_stop(port: int) -> None:
    """Every service drains and exits with 0 on SIGTERM."""
    compose("stop", port=port)
    for name, container in inspected(port).items():
        state = container["State"]
        assert isinstance(state, dict)
        assert state["ExitCode"] == 0, f"{name} exited with {state['ExitCode']}"


def main() -> int:
    if reason := reason_to_skip():
        print(f"skipped: {reason}")
        return 0
    with stack() as port:
        answer = ask(port)
        print(f"{QUESTION} {answer}")
        assert "Paris" in answer
        check_containers(port)
        check_kernels(port)
        check_stop(port)
    print("the stack answered and stopped cleanly")
    return 0


if __name__ == "__main__":
    sys.exit(main())
