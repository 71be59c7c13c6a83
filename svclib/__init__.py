"""What any service needs to be a service."""

import sys

if sys.platform == "win32":
    raise ImportError("pellucid runs on Linux and macOS; on Windows, install and run it inside of WSL 2")
