"""Ports for the processes of one stack, chosen so that two stacks on one machine cannot get the same one.

A held port is a TCP socket that is bound and never listens, and allows address reuse: the service can listen beside it,
the port is not lent to anybody's outgoing connection while the service is being restarted, and connections of an
earlier server that are not quite gone do not count. Another supervisor could do the same as long as nobody listens, so
each also holds a lock: a socket of the local kind, whose name only one can have and which goes when its owner goes.

Only Linux has such names, and lets a listener share a port with a bound socket; elsewhere a port is let go before its
service starts, and a lost race is a service that cannot listen.
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
    """A port that is ours until ``release``."""

    host: str
    port: int
    _sockets: tuple[socket.socket, ...]

    @classmethod
    def take(cls, host: str, port: int) -> Self:
        """Hold ``port``, or any free one for 0. Raises ``CommandError`` when it is taken or the host is not ours."""
        try:
            return cls._hold(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CommandError(f"port {port} on {host} is taken by another program; choose another one") from None
            raise CommandError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None

    @classmethod
    def prefer(cls, host: str, port: int) -> Self:
        """Hold ``port`` if it is free, else any free one."""
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
        """Let the port go. May be called twice."""
        for held in self._sockets:
            held.close()


def reachable(host: str) -> str:
    """Where a client on this machine finds what listens on ``host``, spelled as in a URL."""
    if host in ("", "0.0.0.0"):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host
