from __future__ import annotations

import threading

from engine_svc.grammar.threads import STACK_BYTES, deep_threads


def test_only_these_threads_have_deep_stacks() -> None:
    before = threading.stack_size()
    threads = deep_threads(2, "deep")
    assert threading.stack_size() == before != STACK_BYTES
    names = {threads.submit(lambda: threading.current_thread().name).result() for _ in range(50)}
    assert all(name.startswith("deep") for name in names)
    assert sum(thread.name.startswith("deep") for thread in threading.enumerate()) == 2
    threads.shutdown()
