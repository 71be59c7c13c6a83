"""Compiles the kernels for this machine: ``python -m engine_svc.kernels.build``. Run at set-up, never by the engine.

The library is stored in the Python environment. Its name has a hash of sources, flags and CPU, so each version is built
once, and a library from older sources or for another CPU is never loaded. The sources need only the compiler's headers.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

_SOURCES: Final = Path(__file__).parent / "csrc"
_FLAGS: Final = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC")
_TIMEOUT_SECONDS: Final = 300.0


class BuildError(Exception):
    """The kernels cannot be built on this machine; the message has the reason."""


def library_path(folder: Path | None = None) -> Path:
    """Path of the library for this machine, built or not."""
    digest = hashlib.sha256(f"{_FLAGS} {platform.machine()} {_processor()}".encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    folder = folder or Path(sys.prefix) / "lib" / "pellucid"
    return folder / f"kernels-{digest.hexdigest()[:16]}.so"


def build(folder: Path | None = None, *, compiler: str | None = None) -> Path:
    """Compile the library unless it exists. Raises ``BuildError``."""
    target = library_path(folder)
    if target.exists():
        return target
    command = compiler or find_compiler()
    if command is None:
        raise BuildError("no C++ compiler found; install g++ or clang++, or set CXX")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as unfinished:
            _compile(command, Path(unfinished, target.name))
            Path(unfinished, target.name).rename(target)
    except OSError as error:
        raise BuildError(str(error)) from error
    return target


def find_compiler() -> str | None:
    """``CXX``, or the first compiler on PATH."""
    candidates = filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))
    return next((found for candidate in candidates if (found := shutil.which(candidate))), None)


def _compile(compiler: str, target: Path) -> None:
    sources = map(str, sorted(_SOURCES.glob("*.cpp")))
    try:
        done = subprocess.run(
            [compiler, *_FLAGS, *sources, "-o", str(target)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{compiler} took more than {_TIMEOUT_SECONDS:.0f} seconds") from error
    if done.returncode != 0:
        raise BuildError(f"{compiler} failed: {done.stderr.strip()[-2000:]}")


def _processor() -> str:
    """The CPU model and features, on which ``-march=native`` depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU implementer", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.partition(":")[0].strip() in wanted))


def main() -> int:
    """Build and print the result. Exits 0 on failure too, because the engine works without kernels, only slower."""
    started = time.monotonic()
    exists = library_path().exists()
    try:
        build()
    except BuildError as error:
        print(f"The engine's kernels were not built; it will be slower: {error}", file=sys.stderr)
        return 0
    if not exists:
        print(f"Built the engine's kernels in {time.monotonic() - started:.1f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
