"""Admission: the longest sequence that fits, and the number of choices at once. A request beyond either is refused."""

from __future__ import annotations

from dataclasses import dataclass

from svclib.errors import ContextLengthExceeded, InvalidRequest, Overloaded

_RETRY_AFTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """The limits of one sequence. Its last token needs no block: nothing is computed after it."""

    max_model_len: int
    block_size: int
    num_blocks: int

    def max_tokens(self, num_prompt_tokens: int, requested: int | None) -> int:
        """The maximum output tokens after a prompt: ``requested``, or by default all that fit.

        Raises ``ContextLengthExceeded`` when the prompt exceeds the context, ``InvalidRequest`` when the prompt with
        the requested tokens does, or needs more blocks than there are.
        """
        if num_prompt_tokens >= self.max_model_len:
            raise ContextLengthExceeded(
                f"the prompt must be shorter than the context length of {self.max_model_len} tokens, and has "
                f"{num_prompt_tokens} tokens",
                param="prompt",
            )
        if requested is not None and num_prompt_tokens + requested > self.max_model_len:
            raise InvalidRequest(
                f"the context length is {self.max_model_len} tokens and the prompt has {num_prompt_tokens}, "
                f"so max_tokens must be at most {self.max_model_len - num_prompt_tokens}, not {requested}",
                param="max_tokens",
            )
        available = min(self.max_model_len, self.num_blocks * self.block_size + 1) - num_prompt_tokens
        needed = 1 if requested is None else requested
        if available < needed:
            self._refuse(num_prompt_tokens, needed, param="max_tokens" if available > 0 else "prompt")
        return available if requested is None else requested

    def _refuse(self, num_prompt_tokens: int, num_output_tokens: int, *, param: str) -> None:
        needed = -(-(num_prompt_tokens + num_output_tokens - 1) // self.block_size)
        raise InvalidRequest(
            f"{num_prompt_tokens} prompt tokens and {num_output_tokens} output tokens need {needed} KV cache blocks of "
            f"{self.block_size} tokens, and the engine has {self.num_blocks}",
            param=param,
        )


class Slots:
    """Bounds the requests in flight, running and waiting together. For the event loop's thread.

    A generation request takes one slot per choice; ``unit`` is the plural of what a slot is for, and ``param`` the
    request field that determines the number.
    """

    def __init__(self, max_running: int, max_waiting: int, *, unit: str = "choices", param: str = "n") -> None:
        self._total = max_running + max_waiting
        self._unit = unit
        self._param = param
        self.num_taken = 0

    def take(self, count: int) -> None:
        """Raises ``Overloaded`` when too few are free, ``InvalidRequest`` when ``count`` is more than all."""
        if count > self._total:
            raise InvalidRequest(
                f"{self._param} must be at most {self._total} {self._unit} (size of the engine's queue), not {count}",
                param=self._param,
            )
        if self.num_taken + count > self._total:
            raise Overloaded("the engine's queue is full", retry_after=_RETRY_AFTER_SECONDS)
        self.num_taken += count

    def release(self, count: int) -> None:
        """Return slots."""
        self.num_taken -= count
        assert self.num_taken >= 0
