"""``python -m engine_svc``: the engine as a process."""

from __future__ import annotations

import sys

from engine_svc.config import Settings
from engine_svc.server import EngineService
from svclib.config import SettingsError
from svclib.server import run


def main() -> int:
    """Returns the exit code: 0 after a requested stop, 1 if the engine failed, 2 for an invalid setting."""
    try:
        settings = Settings.load(sys.argv[1:])
    except SettingsError as error:
        print(f"engine_svc: {error}", file=sys.stderr)
        return 2
    service = EngineService(settings)
    return run(service, settings) or int(service.failed)


if __name__ == "__main__":
    sys.exit(main())
