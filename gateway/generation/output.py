"""What comes out of the pipeline, to be written as a stream or collected into one answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from gateway.generation.peers import Formatted


@dataclass(frozen=True, slots=True)
class Output:
    """New output of one choice."""

    index: int
    formatted: Formatted


class Signal(Enum):
    """What is no output."""

    BEGUN = auto()
    """The engine has begun with the request."""
    PING = auto()
    """Some time has passed."""


Event: TypeAlias = Output | Signal
