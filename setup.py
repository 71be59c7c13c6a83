"""Refuses to install on Windows, before pip resolves dependencies. Everything else is in pyproject.toml."""

import sys

from setuptools import setup

if sys.platform == "win32":
    sys.exit("pellucid runs on Linux and macOS; on Windows, run it inside WSL 2")

setup()
