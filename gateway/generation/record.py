"""The record of one request: times and counts, from which its log line and metrics are made."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.generation.events import Chunk, EngineStats, Finish, Head
from gateway.generation.prompt import Prompt
from gateway.policy.limits import MAX_IGNORED_NAME_CHARS, MAX_IGNORED_NAMES, MAX_LABEL_CHARS


@dataclass
class RequestRecord:
    """Filled in by the request's own task. Times are Unix seconds; 0.0: not reached.

    ``first_chunk_at`` and ``last_chunk_at`` are by the gateway's clock. Their distance to the engine's
    ``first_token_at`` and ``last_token_at`` is the time of the return path.
    """

    request_id: str
    request_received_at: float = field(default_factory=time.time)
    rendered_at: float = 0.0
    tokenized_at: float = 0.0
    queue_enter_at: float = 0.0
    prefill_start_at: float = 0.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    first_chunk_at: float = 0.0
    last_chunk_at: float = 0.0
    finished_at: float = 0.0

    model_name: str = ""
    template_version: str = ""
    fingerprint: str = ""
    replicas: dict[str, str] = field(default_factory=dict)
    """Address of the replica of each service."""
    ignored: tuple[str, ...] = ()
    traceparent: str = ""
    """The client's header (W3C Trace Context); empty: none."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens_by_choice: list[int] = field(default_factory=list)
    reasoning_tokens: int = 0
    finish_reasons: list[str] = field(default_factory=list)
    """One for each choice; empty while it is running."""
    seed: int | None = None
    preemptions: int = 0

    error_code: str = ""
    """The error, even after the status line; empty: none."""

    @property
    def completion_tokens(self) -> int:
        return sum(self.tokens_by_choice)

    def begin(self, choices: int, fingerprint: str = "") -> None:
        """A model was found for the request."""
        self.fingerprint = fingerprint
        self.tokens_by_choice = [0] * choices
        self.finish_reasons = [""] * choices

    def note_prompt(self, prompt: Prompt) -> None:
        self.rendered_at, self.tokenized_at = prompt.rendered_at, prompt.tokenized_at
        self.template_version = prompt.template_version
        self.prompt_tokens = len(prompt.token_ids)
        self.ignored += tuple(f"chat_template_kwargs.{name}" for name in prompt.ignored_kwargs)

    def note_head(self, head: Head) -> None:
        self.prompt_tokens, self.cached_tokens, self.seed = head.prompt_tokens, head.cached_tokens, head.seed

    def note_chunks(self, chunks: Sequence[Chunk], now: float) -> float | None:
        """Count the tokens of one engine output. Returns the seconds since the previous one, None for the first.

        Once a choice has ended, ``note_finish`` sets its exact count.
        """
        for chunk in chunks:
            if not self.finish_reasons[chunk.index]:
                self.tokens_by_choice[chunk.index] += len(chunk.token_ids)
        before, self.last_chunk_at = self.last_chunk_at, now
        if before:
            return max(0.0, now - before)
        self.first_chunk_at = now
        return None

    def note_finish(self, index: int, finish: Finish) -> None:
        self.finish_reasons[index] = finish.reason
        self.tokens_by_choice[index] = finish.completion_tokens
        self.reasoning_tokens += finish.reasoning_tokens

    def note_stats(self, stats: EngineStats) -> None:
        self.queue_enter_at, self.prefill_start_at = stats.queue_enter_at, stats.prefill_start_at
        self.first_token_at, self.last_token_at = stats.first_token_at, stats.last_token_at
        self.preemptions = stats.preemptions

    def log_fields(self) -> dict[str, Any]:
        """The non-empty fields, for a log line of bounded length."""
        ignored = [name[:MAX_IGNORED_NAME_CHARS] for name in self.ignored[:MAX_IGNORED_NAMES]]
        model_name = self.model_name[:MAX_LABEL_CHARS]
        fields = vars(self) | {"ignored": ignored, "model_name": model_name, "request_id": ""}
        known = {name: value for name, value in fields.items() if value}
        return known | {"seconds": round(self.finished_at - self.request_received_at, 6)}
