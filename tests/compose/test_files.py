"""The compose file, the images and the example settings agree with the services and with each other."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from detokenizer_svc.config import DetokenizerSettings
from engine_svc.config import Settings as EngineSettings
from engine_svc.kernels.build import library_path
from gateway.config import Settings as GatewaySettings
from svclib.config import ServiceSettings
from tokenizer_svc.config import TokenizerSettings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SETTINGS: dict[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "tokenizer": TokenizerSettings,
    "engine": EngineSettings,
    "detokenizer": DetokenizerSettings,
}
FOLDERS = {name: name if name == "gateway" else f"{name}_svc" for name in SETTINGS}

each_service = pytest.mark.parametrize("name", SETTINGS)


def dockerfile(name: str) -> str:
    return (ROOT / FOLDERS[name] / "Dockerfile").read_text()


def settings_named(name: str, variables: set[str]) -> set[str]:
    """The variables with a service's prefix."""
    return {variable for variable in variables if variable.startswith(f"{name.upper()}_")}


def known(name: str) -> set[str]:
    return {f"{name.upper()}_{field.upper()}" for field in SETTINGS[name].model_fields}


def variables_of_image(name: str) -> dict[str, str]:
    return dict(re.findall(r"\b([A-Z_]+)=(\S+)", dockerfile(name).rpartition("FROM")[2]))


@each_service
def test_every_variable_is_a_setting(name: str) -> None:
    given = set(SERVICES[name]["environment"])
    assert settings_named(name, given)
    assert settings_named(name, given) <= known(name)
    assert settings_named(name, set(variables_of_image(name))) <= known(name)


@each_service
def test_an_image_listens_on_the_documented_ports(name: str) -> None:
    variables, fields = variables_of_image(name), SETTINGS[name].model_fields
    port = fields["port"].default
    assert variables[f"{name.upper()}_HOST"] == "0.0.0.0"
    assert variables[f"{name.upper()}_PORT"] == str(port)
    exposed = re.search(r"^EXPOSE (.*)$", dockerfile(name), re.MULTILINE)
    assert exposed
    metrics = [] if name == "gateway" else [str(fields["metrics_port"].default)]
    assert exposed[1].split() == [str(port), *metrics]
    check = dockerfile(name).partition("HEALTHCHECK")[2]
    assert f"127.0.0.1:{port}" in check
    if metrics:
        assert variables[f"{name.upper()}_METRICS_PORT"] == metrics[0]
        assert f"{name}:{port}" == SERVICES["gateway"]["environment"][f"GATEWAY_{name.upper()}_ADDRESSES"]


@each_service
def test_the_sources_of_an_image_are_in_the_build_context(name: str) -> None:
    sources = re.findall(r"^COPY ([\w.\- ]+) \S+$", dockerfile(name), re.MULTILINE)
    included = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert set(" ".join(sources).split()) <= set(included)


@each_service
def test_an_image_holds_one_service(name: str) -> None:
    sources = re.findall(r"^COPY ([\w.\- ]+) \S+$", dockerfile(name).rpartition("FROM")[0], re.MULTILINE)
    shared = ["protos", "svclib"] if name == "gateway" else ["protos", "svclib", "modelfiles"]
    assert sorted(" ".join(sources).split()) == sorted(
        ["README.md", "constraints.txt", "pyproject.toml", *shared, FOLDERS[name]]
    )
    assert f"'.[{name}]'" in dockerfile(name)


@each_service
def test_no_container_runs_as_root_or_can_become_root(name: str) -> None:
    assert "\nUSER 10001:10001\n" in dockerfile(name)
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@each_service
def test_the_stop_grace_period_exceeds_the_drain_time(name: str) -> None:
    assert SERVICES[name]["stop_grace_period"] == "35s"
    assert SETTINGS[name].model_fields["drain_seconds"].default + 5 < 35


def entrypoint(python: Path) -> list[str]:
    """The engine container's entry point, with another program as Python."""
    written = dockerfile("engine").rpartition("ENTRYPOINT")[2].replace("\\\n", "")
    command: list[str] = json.loads(written)
    return [part.replace("/opt/pellucid/bin/python", str(python)) for part in command]


def fake_python(folder: Path, text: str = "") -> Path:
    """A program that records its process id and arguments."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\necho "$$ $*" >> {folder}/calls\n{text}\n')
    path.chmod(0o755)
    return path


def test_the_engine_container_builds_kernels_and_then_execs_the_engine(tmp_path: Path) -> None:
    process = subprocess.Popen([*entrypoint(fake_python(tmp_path, "exit 3")), "--max-num-seqs", "two words"])

    assert process.wait(timeout=20) == 3, "a failed build does not prevent serving"
    built, served = (tmp_path / "calls").read_text().splitlines()
    assert built.partition(" ")[2] == "-m engine_svc.kernels.build"
    assert served == f"{process.pid} -m engine_svc --max-num-seqs two words"


def test_a_container_stopped_during_the_build_exits(tmp_path: Path) -> None:
    process = subprocess.Popen(entrypoint(fake_python(tmp_path, "sleep 0.5")))
    while not (tmp_path / "calls").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=20) == 0
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_kernels_are_kept_in_a_writable_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = dict(volume.split(":")[:2] for volume in SERVICES["engine"]["volumes"])
    folder = mounted["kernels"]
    monkeypatch.setattr(sys, "prefix", "/opt/pellucid")
    assert str(library_path().parent) == folder
    assert f"install --directory --owner=10001 --group=10001 {folder}\n" in dockerfile("engine")
    assert "kernels" in COMPOSE["volumes"]


def test_only_the_gateway_is_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"gateway": ["127.0.0.1:${PORT:-8000}:8000"]}


def test_the_services_behind_the_gateway_have_no_external_network() -> None:
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert all(SERVICES[name]["networks"] == ["inside"] for name in SETTINGS if name != "gateway")


def test_the_gateway_stops_before_the_services_it_needs() -> None:
    assert set(SERVICES["gateway"]["depends_on"]) == set(SETTINGS) - {"gateway"}


def test_the_example_names_exactly_the_variables_in_use() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text()))
    named = set(re.findall(r"^([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert used == named


def test_the_example_has_the_defaults() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for name, value in re.findall(r"^([A-Z_]+)=(.+)$", (ROOT / ".env.example").read_text(), re.MULTILINE):
        assert f"${{{name}:-{value}}}" in text


def test_the_default_model_is_copied_once_and_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("fetch_model", ROOT / "deploy/docker/fetch_model.py")
    assert spec is not None
    assert spec.loader is not None
    fetch_model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fetch_model)
    source, target = tmp_path / "wheel", tmp_path / "models"
    source.mkdir()
    target.mkdir()
    (source / "Model.gguf").write_bytes(b"GGUF first")
    (target / "smollm2-135m-instruct.partial").write_bytes(b"GG")
    monkeypatch.setattr(fetch_model, "DEFAULT_FILES", source)
    monkeypatch.setattr("sys.argv", ["fetch_model.py", str(target)])
    monkeypatch.setenv("MODEL", "")
    fetch_model.main()
    (source / "Model.gguf").write_bytes(b"GGUF second")
    fetch_model.main()
    assert {file.name: file.read_bytes() for file in target.iterdir()} == {"smollm2-135m-instruct.gguf": b"GGUF first"}
    default = f"${{MODEL:-{fetch_model.DEFAULT_NAME}}}"
    assert SERVICES["engine"]["environment"]["ENGINE_MODEL"] == f"/models/{default}"
