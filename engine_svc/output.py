"""What the engine tells about a request, one ``RequestOutput`` for each step that moved it."""

from __future__ import annotations

from dataclasses import dataclass

from engine_svc.request import ChoiceOutput
from svclib.errors import ServiceError


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What is known once a request has started; with its first output."""

    num_prompt_tokens: int
    num_cached_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class RequestStats:
    """Times and counts of a request that ended; with its last output. Unix seconds; 0: did not happen."""

    queue_enter_at: float
    prefill_start_at: float
    first_token_at: float
    last_token_at: float
    num_preemptions: int


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """News of the request whose choices are the group ``group_id``. ``stats`` or ``error`` makes it the last."""

    group_id: int
    choices: list[ChoiceOutput]
    head: RequestHead | None = None
    stats: RequestStats | None = None
    error: ServiceError | None = None

    @property
    def is_last(self) -> bool:
        return self.stats is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class Loads:
    """How busy the engine is. Sequences, and cache blocks that none of them uses."""

    num_running: int
    num_waiting: int
    num_free_blocks: int
