"""What a step yields for a sequence (``Sampled``), and what the engine yields for a request (``RequestOutput``)."""

from __future__ import annotations

from dataclasses import dataclass

from engine_svc.request import FinishReason
from svclib.errors import ServiceError


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probabilities at one position, from the raw logits: the token's, and the best ones, best first.

    ``top`` holds (token id, logprob) pairs. Impossible tokens have -9999.0; every value is finite.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Consecutive tokens of the prompt and their log probabilities, of the same length."""

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What one step produced for one sequence: usually one token, several from a script or from accepted draft tokens.

    ``logprobs`` is as long as ``token_ids``, or empty when not requested. ``token_ids`` may be empty: no token yet,
    schedule again, but not before ``resume_at`` (seconds of ``time.monotonic``). With ``ended`` the choice ends after
    these tokens with finish reason ``length``; with ``completed`` because its constraint allows no token after them.
    ``prompt`` has the log probabilities of the step's ``prompt_rows``.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    resume_at: float = 0.0
    ended: bool = False
    completed: bool = False
    prompt: PromptLogprobs | None = None


@dataclass(frozen=True, slots=True)
class ChoiceOutput:
    """New tokens of one choice, and with its last ones the finish reason; ``matched_token_id`` if a token ended it.

    ``logprobs`` is as long as ``token_ids``, or empty when not requested. ``prompt`` comes before any token.
    """

    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    matched_token_id: int | None = None
    prompt: PromptLogprobs | None = None


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Facts known once a request has started; part of its first output."""

    num_prompt_tokens: int
    num_cached_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class RequestStats:
    """Times and counts of a finished request; part of its last output. Unix seconds; 0: did not happen."""

    queue_enter_at: float
    prefill_start_at: float
    first_token_at: float
    last_token_at: float
    num_preemptions: int


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """Output of the request whose choices are the group ``group_id``. With ``stats`` or ``error`` it is the last."""

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
    """The load of the engine: numbers of sequences, and of cache blocks that none of them uses."""

    num_running: int
    num_waiting: int
    num_free_blocks: int
