"""One run of one service as a child process.

Its output is read line by line. It has its own process group, so that Ctrl-C in the terminal reaches only the
supervisor, and it dies with the supervisor (see ``tether``).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Self

_MAX_LINE_BYTES: Final = 64 * 1024
_LAST_OUTPUT_SECONDS: Final = 1.0


class ServiceProcess:
    """A running child. Its owner must call ``wait``."""

    def __init__(self, process: asyncio.subprocess.Process, tether: int, printing: asyncio.Task[None]) -> None:
        self._process = process
        self._tether = tether
        self._printing = printing

    @classmethod
    async def start(cls, module: str, arguments: Sequence[str], on_line: Callable[[str], None]) -> Self:
        """Run ``python -m module arguments``; ``on_line`` gets each line that it prints."""
        # Not asyncio's pipes: with those, ``wait`` would hang while a grandchild holds the output open.
        stdin, tether = os.pipe()
        output, stdout = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pellucid.tether", module, *arguments),
                stdin=stdin,
                stdout=stdout,
                stderr=stdout,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        except BaseException:
            os.close(tether)
            os.close(output)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        return cls(process, tether, asyncio.create_task(_print(output, on_line)))

    @property
    def pid(self) -> int:
        return self._process.pid

    def terminate(self) -> None:
        """Send SIGTERM: drain and exit. No effect after the process has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL. No effect after the process has ended."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def ended(self) -> None:
        """Wait for the process to end. May be called any number of times, also concurrently."""
        await self._process.wait()

    async def wait(self) -> int:
        """The exit code, or minus the number of the signal that killed it, after its last line. Call once."""
        code = await self._process.wait()
        await asyncio.wait((self._printing,), timeout=_LAST_OUTPUT_SECONDS)
        self._printing.cancel()
        os.close(self._tether)
        return code


async def _print(output: int, on_line: Callable[[str], None]) -> None:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", buffering=0)
    )
    try:
        async for line in lines(reader):
            on_line(line)
    finally:
        transport.close()


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """The non-blank lines of a byte stream. A carriage return, as in progress bars, also ends a line.

    Lines longer than 64 KiB are split.
    """
    pending = b""
    while chunk := await reader.read(_MAX_LINE_BYTES):
        *complete, pending = (pending + chunk).replace(b"\r", b"\n").split(b"\n")
        if len(pending) >= _MAX_LINE_BYTES:
            complete.append(pending)
            pending = b""
        for line in complete:
            if line.strip():
                yield line.decode(errors="replace")
    if pending.strip():
        yield pending.decode(errors="replace")


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exited with code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"
