"""Refuses to be installed where it cannot run, before pip looks at what is needed. The rest is in pyproject.toml."""

import sys

from setuptools import setup

if sys.platform == "win32":
    sys.exit("pellucid runs on Linux and macOS; on Windows, install and run it inside of WSL 2")

setup()
