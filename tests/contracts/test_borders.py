"""What may import what, and what may not be in the source at all."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("gateway", "tokenizer_svc", "engine_svc", "detokenizer_svc")
SHARED = ("svclib", "modelfiles", "protos")
OURS = (*SERVICES, *SHARED, "pellucid")


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert found
    return [path for path in found if "_pb2" not in path.name]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module or ""


def top(name: str) -> str:
    return name.partition(".")[0]


OFFLINE = ROOT / "engine_svc" / "offline"
"""All three services in one process: the one place that may import other services, but nothing that serves."""
SERVING = {"__main__", "config", "metrics", "pool", "server", "servicer"}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_imports_itself_and_what_is_shared(service: str) -> None:
    for path in sources(service):
        strangers = {name for name in imports(path) if top(name) in set(OURS) - {service, *SHARED}}
        if path.parent == OFFLINE:
            strangers = {name for name in strangers if not is_used_offline(name)}
        assert not strangers, f"{path} imports {strangers}"


def is_used_offline(name: str) -> bool:
    service, *rest = name.split(".")
    return service in ("tokenizer_svc", "detokenizer_svc") and bool(rest) and rest[0] not in SERVING


def test_no_other_room_imports_what_is_for_offline_use() -> None:
    for path in sources("engine_svc"):
        if path.parent != OFFLINE and path != ROOT / "engine_svc" / "__init__.py":
            assert not [name for name in imports(path) if name.startswith("engine_svc.offline")], path


def test_svclib_imports_no_service() -> None:
    for path in sources("svclib"):
        assert not {top(name) for name in imports(path)} & {*SERVICES, "pellucid"}


def test_modelfiles_imports_no_service() -> None:
    for path in sources("modelfiles"):
        assert not {top(name) for name in imports(path)} & {*SERVICES, "svclib", "pellucid"}


def test_the_command_line_imports_no_service() -> None:
    for path in sources("pellucid"):
        assert not {top(name) for name in imports(path)} & set(SERVICES), path


ROOMS_IN_ORDER = (
    # What is asked for and told, and what is set.
    *("config", "constraint", "request", "output", "validation", "heartbeat", "process"),
    # What decides: without torch.
    *("grammar", "scheduling", "request_state", "metrics"),
    # What computes.
    *("weights", "layers", "kernels", "attention", "models", "sampling", "executors", "runners"),
    # What steps, and what serves.
    *("step_engine", "engine", "embedding", "loading", "step_loop", "backends", "servicer", "server", "__main__"),
    # The library around all of it.
    *("offline", "__init__"),
)
"""The engine's folders and files, each importing only from itself and from those before it."""


def room(path: Path) -> str:
    """The folder or file right below the service."""
    return path.relative_to(ROOT / "engine_svc").parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The engine's rooms that a file of it imports from, at its beginning or anywhere else."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "engine_svc":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and top(node.module) == "engine_svc":
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("engine_svc.")}
    return found


def test_every_room_of_the_engine_has_its_place() -> None:
    assert {room(path) for path in sources("engine_svc")} <= set(ROOMS_IN_ORDER)
    assert len(set(ROOMS_IN_ORDER)) == len(ROOMS_IN_ORDER)


def test_the_rooms_of_the_engine_import_in_one_direction() -> None:
    for path in sources("engine_svc"):
        below = {*ROOMS_IN_ORDER[: ROOMS_IN_ORDER.index(room(path)) + 1]}
        assert imported_rooms(path) <= below, f"{path} imports {imported_rooms(path) - below}"


@pytest.mark.parametrize("folder", ["scheduling", "grammar"])
def test_what_decides_has_no_torch(folder: str) -> None:
    for path in sources(f"engine_svc/{folder}"):
        assert not {top(name) for name in imports(path)} & {"torch", "transformers"}, path


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("engine_svc.scheduling.scheduler", ("torch",)),
        ("engine_svc.engine", ("torch",)),
        ("engine_svc.backends.embedding", ("torch",)),
        ("engine_svc.request", ("torch", "google.protobuf")),
        ("engine_svc.offline", ("torch", "transformers", "grpc", "google.protobuf", "fastapi")),
        ("svclib.session", ("torch", "fastapi")),
        ("svclib.server", ("torch", "fastapi")),
        ("modelfiles.tokenizer", ("torch", "transformers", "gguf", "grpc", "google.protobuf", "huggingface_hub")),
        ("modelfiles.gguf_header", ("torch", "transformers", "grpc", "google.protobuf")),
        ("modelfiles.token_table", ("torch", "transformers", "gguf", "grpc", "google.protobuf", "tokenizers")),
        ("detokenizer_svc.server", ("torch", "transformers")),
        ("gateway.server", ("torch", "transformers")),
        # A tokenizer has several processes of this.
        ("tokenizer_svc.template_child", ("transformers", "tokenizers", "grpc", "pydantic", "structlog", "numpy")),
    ],
)
def test_importing_one_thing_does_not_load_another(module: str, absent: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print(*[name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("service", SERVICES)
def test_protobuf_stays_at_the_border(service: str) -> None:
    files, folders = (
        {"servicer.py", "server.py"},
        {ROOT / "gateway" / "replicas" / "clients", ROOT / "engine_svc" / "backends"},
    )
    for path in sources(service):
        if path.name not in files and path.parent not in folders:
            foreign = [name for name in imports(path) if "protos.v1" in name or name.startswith("google.protobuf")]
            assert not foreign, f"{path} imports {foreign}"


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_the_same_files(service: str) -> None:
    expected = {"__main__.py", "config.py", "server.py", "metrics.py", "Dockerfile", "README.md"}
    expected.add("api" if service == "gateway" else "servicer.py")
    assert expected <= {path.name for path in (ROOT / service).iterdir()}


FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
FORBIDDEN_CALLS = {"eval", "exec"}


def test_nothing_runs_or_unpickles_data() -> None:
    for path in sources(*OURS):
        assert not {top(name) for name in imports(path)} & FORBIDDEN_MODULES, path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in FORBIDDEN_CALLS, f"{path}:{node.lineno}"
                assert called not in {"torch.load", "yaml.load", "yaml.unsafe_load"}, f"{path}:{node.lineno}"


def test_no_settings_at_import() -> None:
    for path in sources(*OURS):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
                assert not ast.unparse(node.value.func).endswith("Settings"), f"{path}:{node.lineno}"


def test_there_is_no_room_without_a_name() -> None:
    assert [path for path in sources(*OURS) if path.name in {"utils.py", "helpers.py", "common.py", "misc.py"}] == []
