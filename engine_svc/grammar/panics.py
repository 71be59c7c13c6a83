"""Panics of llguidance, which is written in Rust: faults of one request like any other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Panic(Exception):
    """llguidance has panicked; the message is its own."""


@contextmanager
def panics_are_errors() -> Iterator[None]:
    """A panic as an ``Exception``. pyo3 makes a ``BaseException`` of it, which would end a thread that many share."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as panic:
        raise Panic(f"{type(panic).__name__}: {panic}") from panic
