"""Fetches the JSON Schema Test Suite: ``python -m tests.fetch_schema_suite``.

It comes as an npm package with drafts 3 and 4 and goes to ``.models/json-schema-test-suite``, which git ignores. If the
folder exists, nothing is fetched.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.fetch_tokenizers import find_npm

PACKAGE: Final = "json-schema-test-suite"
VERSION: Final = "0.0.10"
FOLDER: Final = Path(__file__).parent.parent / ".models" / PACKAGE


def main() -> int:
    if not FOLDER.is_dir():
        with tempfile.TemporaryDirectory() as scratch:
            print("fetching the JSON Schema Test Suite")
            _fetch(Path(scratch))
    return 0


def _fetch(scratch: Path) -> None:
    command = [*find_npm(scratch), "pack", "--silent", f"{PACKAGE}@{VERSION}"]
    subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(scratch / f"{PACKAGE}-{VERSION}.tgz") as packed:
        packed.extractall(scratch, filter="data")
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    (scratch / "package" / "tests" / "draft4").rename(scratch / "complete")
    FOLDER.mkdir()
    for file in (scratch / "complete").rglob("*.json"):
        target = FOLDER / file.relative_to(scratch / "complete")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
