from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from pellucid.errors import CommandError
from pellucid.stack import BACKENDS, MANAGED_VARIABLES, NAMES, Stack, StackOptions, build
from pellucid.supervisor import Service

OPTIONS = StackOptions(model="/models/m.gguf", served_model_name="m", port=0)


@contextmanager
def built(options: StackOptions = OPTIONS, environment: Mapping[str, str] | None = None) -> Iterator[Stack]:
    stack = build(options, environment or {})
    try:
        yield stack
    finally:
        stack.release()


def flags(stack: Stack, name: str) -> dict[str, str]:
    (one,) = (service for service in stack.services if service.name == name)
    return dict(argument.removeprefix("--").split("=", 1) for argument in one.arguments)


@pytest.mark.parametrize(("value", "flag"), [(True, "--deterministic"), (False, "--no-deterministic"), (None, None)])
def test_switches_are_flags_without_a_value(value: bool | None, flag: str | None) -> None:
    options = StackOptions(model="/models/m.gguf", served_model_name="m", port=0, engine={"deterministic": value})
    with built(options) as stack:
        (engine,) = (service for service in stack.services if service.name == "engine")
        assert [argument for argument in engine.arguments if "deterministic" in argument] == ([flag] if flag else [])


def test_the_four_services_and_the_gateway_takes_clients() -> None:
    with built() as stack:
        assert [service.name for service in stack.services] == list(NAMES)
        assert [service.module for service in stack.services] == [
            "gateway",
            "tokenizer_svc",
            "engine_svc",
            "detokenizer_svc",
        ]
        assert [service.takes_clients for service in stack.services] == [True, False, False, False]


def test_the_gateway_gets_the_addresses_of_the_others() -> None:
    with built() as stack:
        gateway = flags(stack, "gateway")
        for backend in BACKENDS:
            given = flags(stack, backend.name)
            assert gateway[f"{backend.name}-addresses"] == f"{given['host']}:{given['port']}"
        assert stack.url == f"http://127.0.0.1:{gateway['port']}"


def test_two_stacks_share_no_port() -> None:
    with built() as one, built() as other:
        ports = [port.port for stack in (one, other) for port in stack.ports]
        assert len(ports) == len(set(ports)) == 14


def test_the_documented_ports_are_preferred() -> None:
    documented = {"tokenizer": (50051, 9101), "engine": (50052, 9102), "detokenizer": (50053, 9103)}
    assert {backend.name: (backend.port, backend.metrics_port) for backend in BACKENDS} == documented


def test_an_http_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(CommandError, match="already in use"):
        build(StackOptions(model="simulated", served_model_name="s", port=server.getsockname()[1]), {})


def test_model_and_tokenizer_reach_the_services_that_read_them() -> None:
    with built(StackOptions(model="/m", served_model_name="name", tokenizer="/t", port=0)) as stack:
        for name in ("tokenizer", "detokenizer"):
            assert flags(stack, name)["model"] == "/m"
            assert flags(stack, name)["tokenizer"] == "/t"
        assert flags(stack, "engine")["model"] == "/m"
        assert "tokenizer" not in flags(stack, "engine")
        assert flags(stack, "engine")["served-model"] == "name"
        assert flags(stack, "gateway")["served-model-name"] == "name"


def test_a_simulated_engine_takes_its_vocabulary_from_the_tokenizer() -> None:
    with built(StackOptions(model="simulated", served_model_name="s", tokenizer="/t", port=0)) as stack:
        assert flags(stack, "engine")["tokenizer"] == "/t"


def test_options_that_were_not_given_are_not_passed_on() -> None:
    with built() as stack:
        assert set(flags(stack, "engine")) == {"host", "port", "metrics-port", "model", "served-model", "log-format"}
        assert "tool-parser" not in flags(stack, "gateway")


def test_given_options_become_flags() -> None:
    options = StackOptions(
        model="simulated",
        served_model_name="s",
        port=0,
        gateway={"tool_parser": "hermes", "reasoning_parser": None},
        engine={"max_num_seqs": 8, "dtype": None},
    )
    with built(options) as stack:
        assert flags(stack, "gateway")["tool-parser"] == "hermes"
        assert flags(stack, "engine")["max-num-seqs"] == "8"
        assert "dtype" not in flags(stack, "engine")


def test_ports_and_hosts_from_the_environment_are_kept() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with built(environment={"ENGINE_PORT": str(free), "ENGINE_HOST": "0.0.0.0"}) as stack:
        assert flags(stack, "engine")["port"] == str(free)
        assert flags(stack, "engine")["host"] == "0.0.0.0"
        assert flags(stack, "gateway")["engine-addresses"] == f"127.0.0.1:{free}"


def test_a_port_from_the_environment_in_use_is_an_error() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(CommandError, match="already in use"),
    ):
        build(OPTIONS, {"TOKENIZER_METRICS_PORT": str(server.getsockname()[1])})


@pytest.mark.parametrize("value", ["", "x", "-1", "65536", "1e3"])
def test_an_invalid_port_from_the_environment_is_an_error(value: str) -> None:
    with pytest.raises(CommandError, match=r"ENGINE_PORT=.* is not a port number"):
        build(OPTIONS, {"ENGINE_PORT": value})


@pytest.mark.parametrize("name", sorted(MANAGED_VARIABLES))
def test_managed_variables_are_refused(name: str) -> None:
    with pytest.raises(CommandError, match=name):
        build(OPTIONS, {name: "x"})


def find(stack: Stack, name: str) -> Service:
    return next(service for service in stack.services if service.name == name)


def test_a_service_is_killed_only_after_its_drain_time() -> None:
    with built(environment={"ENGINE_DRAIN_SECONDS": "100", "GATEWAY_DRAIN_SECONDS": "soon"}) as stack:
        assert find(stack, "engine").stop_seconds > 100
        assert find(stack, "tokenizer").stop_seconds > 25
        assert find(stack, "gateway").stop_seconds > 25


def test_the_log_format_is_console_unless_set() -> None:
    with built(environment={"ENGINE_LOG_FORMAT": "json"}) as stack:
        assert "log-format" not in flags(stack, "engine")
        assert flags(stack, "gateway")["log-format"] == "console"
