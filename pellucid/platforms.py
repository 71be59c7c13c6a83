"""Where this runs, said before anything is imported that other systems do not have."""

from __future__ import annotations

import sys
from typing import Final

WHERE: Final = "pellucid runs on Linux and macOS; on Windows, install and run it inside of WSL 2"


def check_platform() -> None:
    """Exits with a sentence on Windows."""
    if sys.platform == "win32":
        sys.exit(WHERE)
