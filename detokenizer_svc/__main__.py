"""``python -m detokenizer_svc``."""

from __future__ import annotations

import sys

from detokenizer_svc.config import DetokenizerSettings
from detokenizer_svc.server import DetokenizerService
from svclib.config import SettingsError
from svclib.server import run


def main(argv: list[str]) -> int:
    """Run the service. Returns the exit code; 2 for bad settings."""
    try:
        settings = DetokenizerSettings.load(argv)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return run(DetokenizerService(settings), settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
