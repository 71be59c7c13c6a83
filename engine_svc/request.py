"""A request inside the engine. Knows neither protobuf nor torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine_svc.constraint import Constraint, Grammar, Thinking

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters with all defaults applied (see ``SamplingParams`` in engine.proto).

    ``temperature == 0`` or ``top_p == 0`` is greedy; ``top_k == 0`` keeps all tokens; ``max_tokens`` is at least 1;
    ``logprobs`` is None for no log probabilities, else the number of alternatives for each token; ``prompt_logprobs``
    is the same for the tokens of the prompt but the first.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    n: int = 1
    logprobs: int | None = None
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    constraint: Constraint | None = None
    prompt_logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0 or self.top_p == 0.0


@dataclass(frozen=True, slots=True)
class Script:
    """The output of a simulated model: ``steps`` played ``repeat`` times, with ``delay`` seconds before each step."""

    steps: tuple[tuple[int, ...], ...]
    repeat: int = 1
    delay: float = 0.0
    finish: FinishReason = "stop"


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to be continued ``sampling_params.n`` times. ``arrived_at`` is in Unix seconds.

    ``open_ended`` says that the client set no ``max_tokens`` and got the rest of the context. ``grammar`` is the
    compiled constraint, if there is one.
    ``output_token_ids`` were generated before: the one choice continues after them. ``choice_index`` is the index of
    the first choice in the client's request; noise is a function of it.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling_params: SamplingParams
    eos_token_ids: frozenset[int] = frozenset()
    script: Script | None = None
    arrived_at: float = 0.0
    open_ended: bool = False
    thinking: Thinking | None = None
    output_token_ids: tuple[int, ...] = ()
    choice_index: int = 0
    grammar: Grammar | None = None

    @property
    def num_seqs(self) -> int:
        """One sequence for each choice."""
        return self.sampling_params.n

    @property
    def num_slots(self) -> int:
        """One slot for each choice."""
        return self.sampling_params.n
