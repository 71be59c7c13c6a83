"""The platform check, which must run before modules are imported that Windows does not have."""

from __future__ import annotations

import sys
from typing import Final

WHERE: Final = "pellucid runs on Linux and macOS; on Windows, run it inside WSL 2"


def check_platform() -> None:
    """Exit with a message on Windows."""
    if sys.platform == "win32":
        sys.exit(WHERE)
