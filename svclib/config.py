"""Settings of a service: environment variables with the service's prefix, the same names as flags.

A service subclasses ``ServiceSettings`` and sets its prefix; ``load`` reads flags over environment over defaults. A
variable with the prefix that names no setting is an error, and so is an unknown flag.
"""

from __future__ import annotations

import os
from typing import Self

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict


class SettingsError(Exception):
    """A setting is unknown or has a bad value; the message is for the person who starts the service."""


class ServiceSettings(BaseSettings):
    """What every service is told. Subclasses set ``model_config`` with their ``env_prefix``."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", cli_kebab_case=True, cli_implicit_flags=True)

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=0, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    metrics_port: int = Field(default=0, ge=0, le=65535, description="port of /metrics; 0 takes a free one")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$", description="least level to log")
    log_format: str = Field(
        default="json", pattern="^(json|console)$", description="json for machines, console for people"
    )
    drain_seconds: float = Field(default=25.0, ge=0, le=3600, description="time that running requests get at shutdown")

    @classmethod
    def load(cls, argv: list[str]) -> Self:
        """Settings from flags and environment.

        Raises ``SettingsError`` naming what is wrong. ``--help`` prints the settings and exits.
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
            raise SettingsError(f"unknown setting {', '.join(unknown)}; known are {', '.join(sorted(known))}")


def faults(error: ValidationError) -> str:
    """All that is wrong with some settings, in one line."""
    return "; ".join(map(_fault, error.errors()))


def _fault(error: ErrorDetails) -> str:
    """One fault; a fault between settings names none."""
    place = ".".join(map(str, error["loc"]))
    message = error["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
