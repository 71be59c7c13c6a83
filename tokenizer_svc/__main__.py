"""``python -m tokenizer_svc``."""

from __future__ import annotations

import os
import sys

from svclib.config import SettingsError
from svclib.server import run
from tokenizer_svc.config import TokenizerSettings
from tokenizer_svc.server import TokenizerService


def main(argv: list[str]) -> int:
    """Run the service. Returns the exit code; 2 for bad settings."""
    # Batches of one need no threads of the library, and a process that starts children should have none of them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        settings = TokenizerSettings.load(argv)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return run(TokenizerService(settings), settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
