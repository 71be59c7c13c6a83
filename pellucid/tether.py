"""Runs a module as the main program, for as long as the process at the other end of standard input lives.

``python -m pellucid.tether MODULE ARGUMENT...`` is ``python -m MODULE ARGUMENT...`` that cannot be orphaned: the
supervisor holds the writing end of a pipe, and when it dies, in whatever way, the kernel closes that end.
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
    """Start the watch, then become the module."""
    module, *arguments = sys.argv[1:]
    threading.Thread(target=_die_with_the_other_end, name="tether", daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _die_with_the_other_end() -> None:
    while os.read(_STDIN, 1024):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
