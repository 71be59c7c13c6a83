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


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_imports_itself_and_what_is_shared(service: str) -> None:
    for path in sources(service):
        strangers = {top(name) for name in imports(path)} & set(OURS) - {service, *SHARED}
        assert not strangers, f"{path} imports {strangers}"


def test_svclib_imports_no_service() -> None:
    for path in sources("svclib"):
        assert not {top(name) for name in imports(path)} & {*SERVICES, "pellucid"}


def test_modelfiles_imports_no_service() -> None:
    for path in sources("modelfiles"):
        assert not {top(name) for name in imports(path)} & {*SERVICES, "svclib", "pellucid"}


def test_the_command_line_imports_no_service() -> None:
    for path in sources("pellucid"):
        assert not {top(name) for name in imports(path)} & set(SERVICES), path


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("engine_svc.scheduling.scheduler", ("torch",)),
        ("engine_svc.engine", ("torch",)),
        ("engine_svc.embedding.servicer", ("torch",)),
        ("engine_svc.request", ("torch", "google.protobuf")),
        ("engine_svc.offline", ("torch", "transformers", "grpc", "google.protobuf")),
        ("svclib.session", ("torch", "fastapi")),
        ("svclib.server", ("torch", "fastapi")),
        ("modelfiles.gguf_tokenizer", ("torch", "transformers", "gguf", "grpc", "google.protobuf")),
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
    allowed = {"servicer.py", "server.py"}
    for path in sources(service):
        if path.name not in allowed and path.parent != ROOT / "gateway" / "replicas" / "clients":
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
