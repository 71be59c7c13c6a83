"""The state of one request in the engine: its choices, its times, and what its client has not received yet."""

from __future__ import annotations

from engine_svc.output import ChoiceOutput, RequestHead, RequestOutput, RequestStats
from engine_svc.request import Request
from engine_svc.scheduling.sequence import Sequence, Status, choices_of


class RequestState:
    """Owned by the step loop's thread. Times are Unix seconds, 0 until the event."""

    def __init__(self, request: Request, group_id: int) -> None:
        self.request = request
        self.group_id = group_id
        self.sequences = choices_of(request, group_id)
        self.num_cached_tokens = 0
        self.prefill_start_at = 0.0
        self.first_token_at = 0.0
        self.last_token_at = 0.0
        self._sent_head = False

    @property
    def has_started(self) -> bool:
        return self.prefill_start_at > 0.0

    @property
    def is_finished(self) -> bool:
        return all(sequence.status is Status.FINISHED for sequence in self.sequences)

    def start(self, sequence: Sequence, now: float) -> None:
        """Record the first choice that was scheduled; the prompt is counted for it alone."""
        self.prefill_start_at = now
        self.num_cached_tokens = min(sequence.num_cached_tokens, sequence.num_prompt_tokens)

    def output(self, choices: list[ChoiceOutput], now: float) -> RequestOutput:
        """The next output for the client, after a step or after a choice was stopped."""
        for choice in choices:
            if choice.token_ids:
                self.first_token_at = self.first_token_at or now
                self.last_token_at = now
                break
        head = None if self._sent_head else self._head()
        self._sent_head = True
        stats = self.stats() if self.is_finished else None
        return RequestOutput(self.group_id, choices, head, stats)

    def stats(self) -> RequestStats:
        """Times and counts so far."""
        return RequestStats(
            queue_enter_at=self.request.arrived_at,
            prefill_start_at=self.prefill_start_at,
            first_token_at=self.first_token_at,
            last_token_at=self.last_token_at,
            num_preemptions=sum(sequence.num_preemptions for sequence in self.sequences),
        )

    def _head(self) -> RequestHead:
        request = self.request
        return RequestHead(len(request.prompt_token_ids), self.num_cached_tokens, request.sampling_params.seed)
