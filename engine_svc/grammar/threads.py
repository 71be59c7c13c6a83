"""Threads with deep stacks: llguidance goes down a schema and its references by recursion, and a stack that overflows
ends the process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

STACK_BYTES: Final = 64 * 1024 * 1024
"""Room for about 20,000 levels, far more than the limits let through. Memory is taken only as it is used."""


def deep_threads(count: int, name: str) -> ThreadPoolExecutor:
    """An executor whose threads exist already, because the size of stacks is said for all threads that start."""
    threads = ThreadPoolExecutor(count, thread_name_prefix=name)
    meeting = threading.Barrier(count)
    usual = threading.stack_size(STACK_BYTES)
    try:
        started = [threads.submit(meeting.wait) for _ in range(count)]
    finally:
        threading.stack_size(usual)
    for one in started:
        one.result()
    return threads
