"""Ports and settings of the four processes of a local stack.

All other settings reach the services through their environment variables, unchanged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from pellucid import readiness
from pellucid.errors import CommandError
from pellucid.ports import HeldPort
from pellucid.supervisor import Service
from protos import simulated
from svclib.config import ServiceSettings

Settings: TypeAlias = Mapping[str, object]
"""Values by setting name; None leaves the service's default."""

LOOPBACK: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8000

DEFAULT_HANG_SECONDS: Final = 10.0

_CLOSING_SECONDS: Final = 5.0
"""Time after the drain time for a service to close connections and flush its logs."""

MANAGED_VARIABLES: Final = {
    "TOKENIZER_MODEL": "--model",
    "DETOKENIZER_MODEL": "--model",
    "ENGINE_TOKENIZER": "--tokenizer",
    "DETOKENIZER_TOKENIZER": "--tokenizer",
    "ENGINE_SERVED_MODEL": "--served-model-name",
    "GATEWAY_TOKENIZER_ADDRESSES": "",
    "GATEWAY_ENGINE_ADDRESSES": "",
    "GATEWAY_DETOKENIZER_ADDRESSES": "",
}
"""Variables that ``pellucid serve`` sets for the services, and the option that replaces them, if there is one."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A gRPC service and its preferred ports."""

    name: str
    port: int
    metrics_port: int

    @property
    def module(self) -> str:
        return f"{self.name}_svc"


class BackendPorts(NamedTuple):
    """The ports reserved for a gRPC service."""

    listen: HeldPort
    metrics: HeldPort


BACKENDS: Final = (
    Backend("tokenizer", 50051, 9101),
    Backend("engine", 50052, 9102),
    Backend("detokenizer", 50053, 9103),
)
GATEWAY: Final = "gateway"
NAMES: Final = (GATEWAY, *(backend.name for backend in BACKENDS))


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Options of ``pellucid serve``."""

    model: str
    """A path, or ``simulated``."""
    served_model_name: str
    tokenizer: str | None = None
    """A path, or None: the model's own."""
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    hang_seconds: float = DEFAULT_HANG_SECONDS
    """A service that has not responded for this long is restarted; 0: never."""
    gateway: Settings = field(default_factory=dict)
    engine: Settings = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stack:
    """Four services with reserved ports. Call ``release`` when they have ended."""

    url: str
    services: tuple[Service, ...]
    ports: tuple[HeldPort, ...]

    def release(self) -> None:
        for port in self.ports:
            port.release()


def build(options: StackOptions, environment: Mapping[str, str]) -> Stack:
    """Reserve ports and assign settings. Raises ``CommandError`` if a port is in use or a managed variable is set."""
    _refuse_managed_variables(environment)
    front = HeldPort.take(options.host, options.port)
    url = f"http://{front.address}"
    held = {backend: _hold(backend, environment) for backend in BACKENDS}
    services = (
        _service(
            GATEWAY,
            GATEWAY,
            _gateway_settings(options, front, {backend.name: ports.listen for backend, ports in held.items()}),
            partial(readiness.http_service, f"{url}/ready"),
            _unless_never(options, partial(readiness.http_hang, f"{url}/health", options.hang_seconds)),
            environment,
        ),
        *(
            _service(
                backend.name,
                backend.module,
                _backend_settings(options, backend, ports),
                partial(readiness.grpc_service, ports.listen.address),
                _unless_never(options, partial(readiness.grpc_hang, ports.listen.address, options.hang_seconds)),
                environment,
            )
            for backend, ports in held.items()
        ),
    )
    return Stack(url, services, (front, *(port for ports in held.values() for port in ports)))


def _gateway_settings(options: StackOptions, front: HeldPort, peers: Mapping[str, HeldPort]) -> Settings:
    return {
        "host": options.host,
        "port": front.port,
        **{f"{name}_addresses": port.address for name, port in peers.items()},
        "served_model_name": options.served_model_name,
        **options.gateway,
    }


def _backend_settings(options: StackOptions, backend: Backend, ports: BackendPorts) -> Settings:
    return {
        "host": ports.listen.host,
        "port": ports.listen.port,
        "metrics_port": ports.metrics.port,
        "model": options.model,
        **(_engine_settings(options) if backend.name == "engine" else {"tokenizer": options.tokenizer}),
    }


def _engine_settings(options: StackOptions) -> Settings:
    # A real model needs no tokenizer in the engine; the simulated one takes its vocabulary size from it.
    tokenizer = options.tokenizer if options.model == simulated.MODEL_NAME else None
    return {"tokenizer": tokenizer, "served_model": options.served_model_name, **options.engine}


def _refuse_managed_variables(environment: Mapping[str, str]) -> None:
    for name, option in MANAGED_VARIABLES.items():
        if name in environment:
            fix = f"use {option} instead" if option else "unset it, or start the services one by one"
            raise CommandError(f"{name} is set, but `pellucid serve` sets it itself; {fix}")


def _hold(backend: Backend, environment: Mapping[str, str]) -> BackendPorts:
    prefix = backend.name.upper()
    host = environment.get(f"{prefix}_HOST", LOOPBACK)
    return BackendPorts(
        listen=_hold_one(host, f"{prefix}_PORT", environment, backend.port),
        metrics=_hold_one(host, f"{prefix}_METRICS_PORT", environment, backend.metrics_port),
    )


def _hold_one(host: str, variable: str, environment: Mapping[str, str], preferred: int) -> HeldPort:
    wanted = environment.get(variable)
    if wanted is None:
        return HeldPort.prefer(host, preferred)
    if not wanted.isdecimal() or int(wanted) > 65535:
        raise CommandError(f"{variable}={wanted!r} is not a port number from 0 to 65535")
    return HeldPort.take(host, int(wanted))


def _service(
    name: str,
    module: str,
    settings: Settings,
    ready: Callable[[], Awaitable[None]],
    hang: Callable[[], Awaitable[None]] | None,
    environment: Mapping[str, str],
) -> Service:
    if f"{name.upper()}_LOG_FORMAT" not in environment:
        settings = {**settings, "log_format": "console"}
    return Service(
        name=name,
        module=module,
        arguments=_flags(settings),
        ready=ready,
        hang=hang,
        stop_seconds=_drain_seconds(name, environment) + _CLOSING_SECONDS,
        takes_clients=name == GATEWAY,
    )


def _unless_never(options: StackOptions, hang: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]] | None:
    return hang if options.hang_seconds else None


def _flags(settings: Settings) -> tuple[str, ...]:
    return tuple(_flag(name.replace("_", "-"), value) for name, value in settings.items() if value is not None)


def _flag(name: str, value: object) -> str:
    match value:
        case True:
            return f"--{name}"
        case False:
            return f"--no-{name}"
    return f"--{name}={value}"


def _drain_seconds(name: str, environment: Mapping[str, str]) -> float:
    default: float = ServiceSettings.model_fields["drain_seconds"].default
    try:
        return float(environment.get(f"{name.upper()}_DRAIN_SECONDS", default))
    except ValueError:
        return default  # The service refuses the value with its own message.
