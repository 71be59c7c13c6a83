"""Import rules between and inside services, and forbidden modules and calls."""

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
"""All three services in one process: the only package that may import other services, except their servers."""
SERVING = {"__main__", "config", "metrics", "pool", "server", "servicer"}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_imports_only_itself_and_shared_packages(service: str) -> None:
    for path in sources(service):
        forbidden = {name for name in imports(path) if top(name) in set(OURS) - {service, *SHARED}}
        if path.parent == OFFLINE:
            forbidden = {name for name in forbidden if not is_used_offline(name)}
        assert not forbidden, f"{path} imports {forbidden}"


def is_used_offline(name: str) -> bool:
    service, *rest = name.split(".")
    return service in ("tokenizer_svc", "detokenizer_svc") and bool(rest) and rest[0] not in SERVING


def test_no_other_package_imports_the_offline_library() -> None:
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


PACKAGES_IN_ORDER = (
    # Requests, outputs and settings.
    *("config", "constraint", "request", "output", "validation", "heartbeat", "process"),
    # Decisions, without torch.
    *("grammar", "scheduling", "request_state", "metrics"),
    # Computation.
    *("weights", "layers", "kernels", "attention", "models", "sampling", "executors", "runners"),
    # Stepping and serving.
    *("step_engine", "engine", "embedding", "loading", "step_loop", "backends", "servicer", "server", "__main__"),
    # The library around all of it.
    *("offline", "__init__"),
)
"""The engine's packages and modules; each imports only itself and earlier ones."""


def package(path: Path) -> str:
    """The package or module directly inside the service."""
    return path.relative_to(ROOT / "engine_svc").parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    """The engine packages that a file imports, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "engine_svc":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and top(node.module) == "engine_svc":
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("engine_svc.")}
    return found


def test_every_engine_package_is_in_the_order() -> None:
    assert {package(path) for path in sources("engine_svc")} <= set(PACKAGES_IN_ORDER)
    assert len(set(PACKAGES_IN_ORDER)) == len(PACKAGES_IN_ORDER)


def test_engine_packages_import_in_one_direction() -> None:
    for path in sources("engine_svc"):
        below = {*PACKAGES_IN_ORDER[: PACKAGES_IN_ORDER.index(package(path)) + 1]}
        assert imported_packages(path) <= below, f"{path} imports {imported_packages(path) - below}"


@pytest.mark.parametrize("folder", ["scheduling", "grammar"])
def test_scheduling_and_grammar_import_no_torch(folder: str) -> None:
    for path in sources(f"engine_svc/{folder}"):
        assert not {top(name) for name in imports(path)} & {"torch", "transformers"}, path


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("engine_svc.scheduling.scheduler", ("torch",)),
        ("engine_svc.engine", ("torch",)),
        ("engine_svc.backends.embedding", ("torch",)),
        ("engine_svc.request", ("torch", "google.protobuf")),
        ("engine_svc.offline", ("torch", "transformers", "grpc", "google.protobuf", "starlette")),
        ("svclib.session", ("torch", "starlette")),
        ("svclib.server", ("torch", "starlette")),
        ("modelfiles.tokenizer", ("torch", "transformers", "gguf", "grpc", "google.protobuf", "huggingface_hub")),
        ("modelfiles.gguf_header", ("torch", "transformers", "grpc", "google.protobuf")),
        ("modelfiles.token_table", ("torch", "transformers", "gguf", "grpc", "google.protobuf", "tokenizers")),
        ("detokenizer_svc.server", ("torch", "transformers")),
        ("gateway.server", ("torch", "transformers")),
        # A tokenizer service runs several of these processes.
        ("tokenizer_svc.template_child", ("transformers", "tokenizers", "grpc", "pydantic", "structlog", "numpy")),
    ],
)
def test_importing_a_module_does_not_load_heavy_dependencies(module: str, absent: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print(*[name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("service", SERVICES)
def test_protobuf_stays_in_servicers_and_clients(service: str) -> None:
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


def test_nothing_executes_or_unpickles_data() -> None:
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


def test_no_module_is_named_utils() -> None:
    assert [path for path in sources(*OURS) if path.name in {"utils.py", "helpers.py", "common.py", "misc.py"}] == []
