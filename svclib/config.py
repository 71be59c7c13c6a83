"""Settings of a service: environment variables with the service's prefix, and flags of the same names.

A service subclasses ``ServiceSettings`` and sets its prefix. In ``load``, flags override the environment, which
overrides defaults. An unknown flag, or a variable with the prefix that names no setting, is an error.
"""

from __future__ import annotations

import os
from typing import Self

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict


class SettingsError(Exception):
    """A setting is unknown or invalid. The message is for the operator."""


class ServiceSettings(BaseSettings):
    """Settings common to all services. Subclasses set ``model_config`` with their ``env_prefix``."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", cli_kebab_case=True, cli_implicit_flags=True)

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=0, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    metrics_port: int = Field(default=0, ge=0, le=65535, description="port of /metrics; 0 picks a free one")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$", description="minimum log level")
    log_format: str = Field(
        default="json", pattern="^(json|console)$", description="json (one object per line) or console (human-readable)"
    )
    drain_seconds: float = Field(
        default=25.0, ge=0, le=3600, description="time limit for running requests at shutdown, seconds"
    )

    @classmethod
    def load(cls, argv: list[str]) -> Self:
        """Settings from flags and environment. ``--help`` prints them and exits.

        Raises ``SettingsError`` that names each unknown or invalid setting.
        """
        cls._refuse_unknown_variables()
        try:
            return cls(_cli_parse_args=argv, _cli_prog_name=f"python -m {cls.__module__.split('.')[0]}")
        except ValidationError as error:
            raise SettingsError(faults(error)) from None

    @classmethod
    def _refuse_unknown_variables(cls) -> None:
        prefix = cls.model_config["env_prefix"].upper()
        known = {prefix + name.upper() for name in cls.model_fields}
        unknown = sorted(name for name in os.environ if name.upper().startswith(prefix) and name.upper() not in known)
        if unknown:
            raise SettingsError(f"unknown setting {', '.join(unknown)}; known settings: {', '.join(sorted(known))}")


def faults(error: ValidationError) -> str:
    """All faults of a set of settings, in one line."""
    return "; ".join(map(_fault, error.errors()))


def _fault(error: ErrorDetails) -> str:
    """One fault, after the name of its setting; a conflict between settings has no name."""
    place = ".".join(map(str, error["loc"]))
    message = error["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
