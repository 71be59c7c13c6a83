"""Shared by all services: settings, process, health, sessions, errors, logs, metrics."""

import sys

if sys.platform == "win32":
    raise ImportError("pellucid runs on Linux and macOS; on Windows, run it inside WSL 2")
