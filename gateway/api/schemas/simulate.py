"""The field ``simulate``: a script for the simulated model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from gateway.api.schemas.base import TAG, Schema
from gateway.generation import request as neutral
from gateway.policy.limits import MAX_SCRIPT_DELAY_MS, MAX_SCRIPT_REPEAT, MAX_SCRIPT_STEPS


class HexStep(Schema):
    model_config = ConfigDict(extra="forbid")

    hex: Annotated[str, Field(pattern=r"^([0-9A-Fa-f]{2})*$")]


def _kind(step: Any) -> str | None:
    if isinstance(step, dict):
        return f"{TAG}hex"
    return f"{TAG}text" if isinstance(step, str) else None


Step = Annotated[
    Annotated[str, Tag(f"{TAG}text")] | Annotated[HexStep, Tag(f"{TAG}hex")],
    Discriminator(_kind, custom_error_type="step_type", custom_error_message='must be a string or {"hex": "..."}'),
]


class Simulate(Schema):
    model_config = ConfigDict(extra="forbid")

    steps: Annotated[list[Step], Field(max_length=MAX_SCRIPT_STEPS, fail_fast=True)]
    repeat: Annotated[int, Field(ge=1, le=MAX_SCRIPT_REPEAT)] | None = None
    delay_ms: Annotated[float, Field(ge=0, le=MAX_SCRIPT_DELAY_MS)] | None = None
    finish: Literal["stop", "length"] | None = None


def read_script(simulate: Simulate) -> neutral.Script:
    """The script, with each step as text or bytes."""
    return neutral.Script(
        steps=tuple(step if isinstance(step, str) else bytes.fromhex(step.hex) for step in simulate.steps),
        repeat=simulate.repeat,
        delay_ms=simulate.delay_ms,
        finish=simulate.finish,
    )
