"""Reserves ports for the processes of a stack, so that two stacks on one machine cannot choose the same port.

A reservation is a TCP socket that is bound with address reuse and never listens: the service can listen on the same
port, the port cannot become the source port of an outgoing connection while the service restarts, and connections of an
earlier server in TIME_WAIT do not block it. Until something listens, another supervisor could bind the same port, so
each also holds a lock: an abstract Unix socket, whose name only one process can bind and which closes with its owner.

Only Linux has abstract sockets, and lets a listener share a port with a bound socket. Elsewhere the port is released
before its service starts; if another process takes it first, the service cannot listen.
"""

from __future__ import annotations

import errno
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Self

from pellucid.errors import CommandError

_CAN_BE_HELD: Final = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class HeldPort:
    """A port reserved until ``release``."""

    host: str
    port: int
    _sockets: tuple[socket.socket, ...]

    @classmethod
    def take(cls, host: str, port: int) -> Self:
        """Reserve ``port``; 0: any free one. Raises ``CommandError`` if it is in use or the host is not local."""
        try:
            return cls._hold(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CommandError(f"port {port} on {host} is already in use; choose another one") from None
            raise CommandError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None

    @classmethod
    def prefer(cls, host: str, port: int) -> Self:
        """Reserve ``port`` if it is free, else any free one."""
        try:
            return cls._hold(host, port)
        except OSError:
            return cls.take(host, 0)

    @classmethod
    def _hold(cls, host: str, port: int) -> Self:
        with ExitStack() as stack:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            held = stack.enter_context(socket.socket(family, kind, protocol))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(port != 0))
            held.bind(address)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound: int = held.getsockname()[1]
            if not _CAN_BE_HELD:
                return cls(host, bound, ())
            lock = stack.enter_context(socket.socket(socket.AF_UNIX))
            lock.bind(f"\0pellucid {host} {bound}")
            stack.pop_all()
            return cls(host, bound, (held, lock))

    @property
    def address(self) -> str:
        """``host:port`` for a client on this machine."""
        return f"{reachable(self.host)}:{self.port}"

    def release(self) -> None:
        """Release the port. Idempotent."""
        for held in self._sockets:
            held.close()


def reachable(host: str) -> str:
    """The host by which a client on this machine reaches a listener on ``host``, as written in a URL."""
    if host in ("", "0.0.0.0"):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host
