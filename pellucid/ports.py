"""Ports for the processes of one stack, chosen so that two stacks on one machine cannot get the same one.

A held port is a socket that is bound and never listens. While it is being bound it tolerates no other owner, so of two
supervisors that start at the same moment only one gets the port. Afterwards it allows address reuse, so the service can
listen beside it, and whoever comes later is refused, also while the service is being restarted. Only Linux lets a
listener share a port with such a socket; elsewhere a port is let go before its service starts.
"""

from __future__ import annotations

import errno
import socket
import sys
from dataclasses import dataclass
from typing import Final, Self

from pellucid.errors import CommandError

_CAN_BE_SHARED: Final = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class HeldPort:
    """A port that is ours until ``release``."""

    host: str
    port: int
    _socket: socket.socket

    @classmethod
    def take(cls, host: str, port: int) -> Self:
        """Hold ``port``, or any free one for 0. Raises ``CommandError`` when it is taken or the host is not ours."""
        try:
            return cls._bind(host, port, reuse=False)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise CommandError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        try:
            # Connections of an earlier server that are not quite gone look the same as a listener to an exclusive bind.
            return cls._bind(host, port, reuse=True)
        except OSError:
            raise CommandError(f"port {port} on {host} is taken by another program; choose another one") from None

    @classmethod
    def prefer(cls, host: str, port: int) -> Self:
        """Hold ``port`` if it is free, else any free one."""
        try:
            return cls._bind(host, port, reuse=False)
        except OSError:
            return cls.take(host, 0)

    @classmethod
    def _bind(cls, host: str, port: int, *, reuse: bool) -> Self:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        held = socket.socket(family, kind, protocol)
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
            held.bind(address)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            held.close()
            raise
        bound: int = held.getsockname()[1]
        if not _CAN_BE_SHARED:
            held.close()
        return cls(host, bound, held)

    @property
    def address(self) -> str:
        """``host:port`` for a client on this machine."""
        return f"{reachable(self.host)}:{self.port}"

    def release(self) -> None:
        """Let the port go. May be called twice."""
        self._socket.close()


def reachable(host: str) -> str:
    """Where a client on this machine finds what listens on ``host``, spelled as in a URL."""
    if host in ("", "0.0.0.0"):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host
