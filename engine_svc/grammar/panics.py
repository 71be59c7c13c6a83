"""Panics of llguidance, which is written in Rust, as errors of one request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Panic(Exception):
    """llguidance panicked; the message is llguidance's."""


@contextmanager
def panics_are_errors() -> Iterator[None]:
    """Raise ``Panic`` for a panic. pyo3 raises a ``BaseException``, which would end a shared thread."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as panic:
        raise Panic(f"{type(panic).__name__}: {panic}") from panic
