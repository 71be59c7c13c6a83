"""``python -m gateway``."""

from __future__ import annotations

import sys

from gateway.config import Settings
from gateway.server import run
from svclib.config import SettingsError


def main() -> int:
    try:
        settings = Settings.load(sys.argv[1:])
    except SettingsError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2
    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
