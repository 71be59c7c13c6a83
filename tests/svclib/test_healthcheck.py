from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from svclib.healthcheck import is_serving


@contextmanager
def service(status: health_pb2.HealthCheckResponse.ServingStatus.ValueType) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    servicer = health.HealthServicer()
    servicer.set("", status)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize(("status", "expected"), [("SERVING", True), ("NOT_SERVING", False), ("UNKNOWN", False)])
def test_only_serving_is_healthy(status: str, expected: bool) -> None:
    with service(health_pb2.HealthCheckResponse.ServingStatus.Value(status)) as address:
        assert is_serving(address) is expected


def test_without_a_listener_it_is_not_healthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    assert not is_serving(address)


def test_exit_codes() -> None:
    with service(health_pb2.HealthCheckResponse.SERVING) as address:
        assert subprocess.run([sys.executable, "-m", "svclib.healthcheck", address], check=False).returncode == 0
    assert subprocess.run([sys.executable, "-m", "svclib.healthcheck", address], check=False).returncode == 1
