"""The examples in README.md work."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.stack import Stack

README = (Path(__file__).parents[2] / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8000"
MODEL = '"Qwen/Qwen3-0.6B"'


def example(pattern: str, stack: Stack) -> str:
    """The example that matches, with the stack's port."""
    (found,) = re.findall(pattern, README, re.MULTILINE | re.DOTALL)
    assert ADDRESS in found
    return str(found).replace(ADDRESS, stack.url)


def test_the_curl_line(real: Stack) -> None:
    words = shlex.split(example(r"^    (curl [^\n]*/chat/completions .*?}')$", real))
    name, _, value = words[words.index("-H") + 1].partition(": ")
    body = words[words.index("-d") + 1].encode()
    with urllib.request.urlopen(urllib.request.Request(words[1], data=body, headers={name: value})) as answer:
        assert "Paris" in json.load(answer)["choices"][0]["message"]["content"]


def test_the_openai_client(real: Stack) -> None:
    program = example(r"^```python\n(from openai .*?)^```$", real)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "Paris" in done.stdout


def test_from_python(smollm2: Path) -> None:
    """In float32, like the stack of the other tests: the answers are the same on every machine."""
    (program,) = re.findall(r"^```python\n(from engine_svc .*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert MODEL in program
    words = [sys.executable, "-c", program.replace(MODEL, repr(str(smollm2)))]
    environment = {**os.environ, "ENGINE_DTYPE": "float32"}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    assert "Paris" in done.stdout.splitlines()[-1]
