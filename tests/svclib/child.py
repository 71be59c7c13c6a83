"""A child process with commands for tests; see ``test_child_process.py``."""

from __future__ import annotations

import os
import time

from svclib.child_server import serve

MEMORY_BYTES = 256 * 1024 * 1024


def handle(message: bytes) -> bytes:
    command, _, argument = message.partition(b" ")
    match command:
        case b"echo":
            return argument
        case b"pid":
            return str(os.getpid()).encode()
        case b"sleep":
            time.sleep(float(argument))
            return b"slept"
        case b"exit":
            os._exit(int(argument))
        case b"allocate":
            return str(len(bytearray(int(argument)))).encode()
        case _:
            raise ValueError(f"unknown command {command!r}")


if __name__ == "__main__":
    serve(handle, memory_bytes=MEMORY_BYTES)
