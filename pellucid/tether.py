"""Runs a module as the main program, and kills it when the other end of its standard input closes.

``python -m pellucid.tether MODULE ARGUMENT...`` is ``python -m MODULE ARGUMENT...`` that cannot be orphaned: the
supervisor holds the write end of a pipe, which the kernel closes when the supervisor dies, for whatever reason.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from typing import Final

_STDIN: Final = 0


def main() -> None:
    """Start the watching thread, then run the module."""
    module, *arguments = sys.argv[1:]
    threading.Thread(target=_die_at_end_of_input, name="tether", daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _die_at_end_of_input() -> None:
    while os.read(_STDIN, 1024):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
