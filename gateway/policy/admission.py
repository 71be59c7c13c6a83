"""Admission control: a limit on choices in flight, and the abort of all requests in flight.

A request counts as one once its body has been read, so that rendering is limited too and a slow sender holds no permit;
``http/bodies.py`` bounds bodies that are still arriving. Once checked it counts as many times as it has choices. Unless
it is alone it must leave room for as many more, so that requests with many choices cannot take the last permits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.policy.interrupt import Interrupt
from svclib.errors import InvalidRequest, Overloaded, ServiceError, Unavailable


class Permit:
    """The permit of one request."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.choices = 1

    def grow(self, choices: int) -> None:
        """Count as this many from now on. Raises ``Overloaded``, or ``InvalidRequest`` beyond the limit itself."""
        if choices > self._admission.limit:
            raise InvalidRequest(f"n must be at most {self._admission.limit} on this server", param="n")
        more = choices - self.choices
        is_alone = self._admission.in_use == self.choices
        self._admission.take(more, headroom=0 if is_alone else more)
        self.choices = choices


class Admission:
    """Counts the choices in flight; at most ``limit``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._running: set[Interrupt] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.in_use = 0
        self.is_open = True

    @contextmanager
    def enter(self, interrupt: Interrupt) -> Iterator[Permit]:
        """Count a request for as long as the context lasts. Raises ``Overloaded``, or ``Unavailable`` once closed."""
        self.check_open()
        self.take(1)
        permit = Permit(self)
        self._running.add(interrupt)
        self._idle.clear()
        try:
            yield permit
        finally:
            self.in_use -= permit.choices
            self._running.discard(interrupt)
            if not self._running:
                self._idle.set()

    def check_open(self) -> None:
        """Raises ``Unavailable`` once closed."""
        if not self.is_open:
            raise Unavailable("the gateway is shutting down", retry_after=1.0)

    def take(self, choices: int, *, headroom: int = 0) -> None:
        """Count more choices. Raises ``Overloaded`` when less than ``headroom`` would be left."""
        if self.in_use + choices + headroom > self.limit:
            raise Overloaded("too many requests at once", retry_after=1.0)
        self.in_use += choices

    def close(self) -> None:
        """Admit no more requests."""
        self.is_open = False

    async def idle(self) -> None:
        """Returns when nothing is in flight."""
        await self._idle.wait()

    def end_all(self, error: ServiceError) -> None:
        """Abort all requests in flight with an error."""
        for interrupt in list(self._running):
            interrupt(error)
