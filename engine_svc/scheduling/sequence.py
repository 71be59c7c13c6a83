"""One choice of one request: its tokens, its blocks, how far it is computed. The rest is derived."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from engine_svc.request import FinishReason, Request


class Status(Enum):
    """Where a sequence is in its life."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one choice. ``token_ids`` is prompt and output together; the scheduler owns every other field.

    Keys and values of the first ``num_computed_tokens`` tokens are in the blocks of ``block_table``.
    """

    request: Request
    index: int
    seq_id: int
    token_ids: list[int] = field(default_factory=list)
    block_table: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    status: Status = Status.WAITING
    finish_reason: FinishReason | None = None
    num_preemptions: int = 0

    def __post_init__(self) -> None:
        if not self.token_ids:
            self.token_ids = list(self.request.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - len(self.request.prompt_token_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens
