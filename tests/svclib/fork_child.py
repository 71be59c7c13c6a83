"""A fork server with commands for tests; see ``test_fork_server.py``."""

from __future__ import annotations

import os
import time
from typing import Final

from svclib.child_server import serve_forks
from tests.svclib.child import MEMORY_BYTES
from tests.svclib.child import handle as handle_simple

STACK_BYTES: Final = 8 * 2**20
NICENESS: Final = ((0.05, 2), (0.1, 3))


def handle(message: bytes) -> bytes:
    command, _, argument = message.partition(b" ")
    match command:
        case b"server":
            return str(os.getppid()).encode()
        case b"burn":
            until = time.process_time() + float(argument)
            while time.process_time() < until:
                pass
            return str(os.getpriority(os.PRIO_PROCESS, os.getpid())).encode()
        case _:
            return handle_simple(message)


if __name__ == "__main__":
    serve_forks(handle, memory_bytes=MEMORY_BYTES, stack_bytes=STACK_BYTES, niceness=NICENESS)
