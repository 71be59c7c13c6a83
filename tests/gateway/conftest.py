"""A gateway that many tests share, in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tests.gateway.running import Stack, real_stack


@pytest.fixture(scope="package", autouse=True)
def _no_logs() -> Iterator[None]:
    """Drop log lines; tests of log lines capture them."""
    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    yield
    structlog.configure(**before)


def _drop(logger: Any, method: str, event: Any) -> Any:
    raise structlog.DropEvent


class Background:
    """A stack that runs in a thread until ``stop``."""

    def __init__(self, **settings: Any) -> None:
        self.stack: Stack | None = None
        self._settings = settings
        self._is_up = threading.Event()
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="stack")

    def start(self) -> Stack:
        self._thread.start()
        self._is_up.wait(60)
        if self.stack is None:
            raise AssertionError("the stack did not start") from self._error
        return self.stack

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                self._error = error
            finally:
                self._is_up.set()

    async def _serve(self) -> None:
        async with real_stack(**self._settings) as self.stack:
            self._is_up.set()
            await self._end.wait()


@pytest.fixture(scope="session")
def shared() -> Iterator[Stack]:
    """The real services with the simulated model, and a gateway with default settings."""
    background = Background(served_model_name="simulated", model_aliases="sim, org/sim")
    yield background.start()
    background.stop()
