"""The child processes that try constraints: ``python -m engine_svc.grammar.child TOKENS MEMORY_BYTES``.

A message is a constraint as JSON and the CPU time that it may take, after which the system ends the process; the answer
is an ``Approved`` or what is wrong. ``TOKENS`` is a file of ``vocabulary.write_tokens``.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from engine_svc.constraint import Constraint
from engine_svc.grammar.building import build
from engine_svc.grammar.limits import NICENESS
from engine_svc.grammar.panics import Panic, panics_are_errors
from engine_svc.grammar.source import Source, source_of
from engine_svc.grammar.threads import STACK_BYTES
from engine_svc.grammar.vocabulary import GrammarVocabulary, read_tokens, vocabulary_of
from svclib.child_server import serve_forks
from svclib.errors import InvalidRequest

_BYTES_FOR_A_CHARACTER: Final = 128
"""Of the grammar, where the C library does not count what is allocated."""


def handle(vocabulary: GrammarVocabulary, message: bytes) -> bytes:
    """Compile a constraint and throw the result away."""
    asked = json.loads(message)
    constraint = Constraint(asked["kind"], asked["text"], tuple(asked["choices"]))
    signal.setitimer(signal.ITIMER_PROF, asked["cpu_seconds"])
    try:
        answer = _approve(vocabulary, constraint)
    except InvalidRequest as error:
        answer = {"message": error.message, "param": error.param}
    except Panic as panic:
        answer = {"panic": str(panic)}
    signal.setitimer(signal.ITIMER_PROF, 0)
    return json.dumps(answer).encode()


@panics_are_errors()
def _approve(vocabulary: GrammarVocabulary, constraint: Constraint) -> dict[str, Any]:
    started_at = time.process_time()
    source = source_of(constraint)
    before = _allocated()
    matchers = [build(vocabulary, constraint.kind, text) for text in (source.grammar, source.numbers) if text]
    after = _allocated()
    del matchers
    return {
        "grammar": source.grammar,
        "numbers": source.numbers,
        "num_bytes": _num_bytes(source, before, after),
        "cpu_seconds": time.process_time() - started_at,
    }


def _num_bytes(source: Source, before: int | None, after: int | None) -> int:
    if before is None or after is None:
        return len(source.grammar) * _BYTES_FOR_A_CHARACTER
    return max(after - before, len(source.grammar))


_MALLINFO: Final = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33, see mallinfo(3)."""

    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO.split()]


def _allocated() -> int | None:
    """Bytes that are allocated in this process now; None where the C library does not count them."""
    try:
        count = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None
    count.restype = _MallInfo
    info = count()
    return int(info.uordblks + info.hblkhd)


def main() -> None:
    tokens, memory_bytes = Path(sys.argv[1]), int(sys.argv[2])
    known = read_tokens(tokens)
    vocabulary = vocabulary_of(known, len(known.spelled))
    serve_forks(partial(handle, vocabulary), memory_bytes=memory_bytes, stack_bytes=STACK_BYTES, niceness=NICENESS)


if __name__ == "__main__":
    main()
