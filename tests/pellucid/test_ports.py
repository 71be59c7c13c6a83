from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pellucid.errors import CommandError
from pellucid.ports import HeldPort, reachable

HOST = "127.0.0.1"


def listener(port: int = 0) -> socket.socket:
    return socket.create_server((HOST, port))


def test_a_held_port_is_not_given_out_again() -> None:
    held = HeldPort.take(HOST, 0)
    try:
        other = HeldPort.prefer(HOST, held.port)
        other.release()
        assert other.port != held.port
    finally:
        held.release()


def test_a_service_can_listen_on_its_held_port() -> None:
    held = HeldPort.take(HOST, 0)
    try:
        with listener(held.port) as server, socket.create_connection((HOST, held.port)) as client:
            accepted, _ = server.accept()
            accepted.sendall(b"x")
            assert client.recv(1) == b"x"
            accepted.close()
        with listener(held.port):
            pass  # and again after it has gone away
    finally:
        held.release()


def test_a_port_in_use_is_a_clear_error() -> None:
    with listener() as server:
        port = server.getsockname()[1]
        with pytest.raises(CommandError, match=f"port {port} on {HOST} is already in use"):
            HeldPort.take(HOST, port)


def port_in_time_wait() -> int:
    with listener() as server:
        port: int = server.getsockname()[1]
        client = socket.create_connection((HOST, port))
        accepted, _ = server.accept()
        accepted.close()  # The side that closes first keeps the port.
        client.close()
    with socket.socket() as exclusive, pytest.raises(OSError, match="in use"):
        exclusive.bind((HOST, port))
    return port


@pytest.mark.parametrize("hold", [HeldPort.take, HeldPort.prefer])
def test_time_wait_connections_do_not_block_a_port(hold: Callable[[str, int], HeldPort]) -> None:
    port = port_in_time_wait()
    held = hold(HOST, port)
    try:
        assert held.port == port
        with pytest.raises(CommandError, match="already in use"):
            HeldPort.take(HOST, port)
        with listener(port):
            pass
    finally:
        held.release()


def test_a_preferred_port_in_use_is_replaced() -> None:
    with listener() as server:
        port = server.getsockname()[1]
        held = HeldPort.prefer(HOST, port)
        held.release()
        assert held.port not in (0, port)


def test_a_free_preferred_port_is_used() -> None:
    with listener() as server:
        port = server.getsockname()[1]
    held = HeldPort.prefer(HOST, port)
    held.release()
    assert held.port == port


def test_of_concurrent_requests_for_one_port_one_gets_it() -> None:
    with listener() as server:
        port = server.getsockname()[1]
    with ThreadPoolExecutor(8) as pool:
        held = list(pool.map(lambda _: HeldPort.prefer(HOST, port), range(64)))
    try:
        ports = [one.port for one in held]
        assert len(set(ports)) == 64
        assert ports.count(port) == 1
    finally:
        for one in held:
            one.release()


def test_an_address_of_another_machine_is_a_clear_error() -> None:
    with pytest.raises(CommandError, match="cannot listen on 192\\.0\\.2\\.1"):
        HeldPort.take("192.0.2.1", 0)


def test_a_host_that_cannot_be_resolved_is_a_clear_error() -> None:
    with pytest.raises(CommandError, match="cannot listen on no host"):
        HeldPort.take("no host", 0)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("box", "box"),
    ],
)
def test_reachable_host(host: str, expected: str) -> None:
    assert reachable(host) == expected
