"""One choice of one request: its tokens, its blocks, and how many tokens are computed. The rest is derived."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from engine_svc.request import FinishReason, Request
from engine_svc.scheduling.ngram import NgramDrafter


class Status(Enum):
    """The state of a sequence."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one choice. ``token_ids`` is prompt and output together; the scheduler owns every other field.

    The KV cache of the first ``num_computed_tokens`` tokens is in the blocks of ``block_table``. ``siblings`` are all
    choices of the request, this one included; empty when it is the only one. ``block_hashes`` are those of the full
    blocks, as far as computed. ``resume_at`` is when it is due, by ``time.monotonic``. ``num_prompt_logprobs`` counts
    the prompt tokens whose log probabilities were reported. ``drafter`` is made on first use and dropped on preemption.
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
    siblings: tuple[Sequence, ...] = field(default=(), repr=False)
    block_hashes: list[bytes] = field(default_factory=list, repr=False)
    resume_at: float = 0.0
    num_prompt_logprobs: int = 0
    drafter: NgramDrafter | None = field(default=None, repr=False)
    end_token_ids: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.token_ids:
            self.token_ids = [*self.request.prompt_token_ids, *self.request.output_token_ids]
        params = self.request.sampling_params
        eos = frozenset() if params.ignore_eos else self.request.eos_token_ids
        self.end_token_ids = params.stop_token_ids | eos

    @property
    def group_id(self) -> int:
        """The same for all choices of a request, and different for every other request."""
        return self.seq_id - self.index

    @property
    def choice_index(self) -> int:
        """Which choice of the client's request this is; part of the noise key."""
        return self.request.choice_index + self.index

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
    def needs_prompt_logprobs(self) -> bool:
        """Whether log probabilities of the prompt are still to be reported. The first choice reports them."""
        reports = self.request.sampling_params.prompt_logprobs is not None and self.index == 0
        return reports and self.num_prompt_logprobs < self.num_prompt_tokens - 1

    @property
    def num_skippable_tokens(self) -> int:
        """Leading tokens without needed logits, which may come from the prefix cache: all before the last token, or
        before the first prompt token whose log probability is still to be reported."""
        return self.num_prompt_logprobs if self.needs_prompt_logprobs else self.num_tokens - 1

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_decoding(self) -> bool:
        """Whether only the last token is to be computed, for the next one."""
        return self.num_uncomputed_tokens == 1


def choices_of(request: Request, first_seq_id: int) -> tuple[Sequence, ...]:
    """The sequences of a request, numbered from ``first_seq_id``."""
    sequences = tuple(Sequence(request, index, first_seq_id + index) for index in range(request.sampling_params.n))
    if len(sequences) > 1:
        for sequence in sequences:
            sequence.siblings = sequences
    return sequences
