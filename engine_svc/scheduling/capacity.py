"""What the engine can ever hold, and how many choices it takes at once: the two reasons to refuse a request."""

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

    def max_tokens(self, num_prompt_tokens: int, asked: int | None) -> int:
        """How many tokens may follow a prompt: what was asked for, or by default all that fit.

        Raises ``ContextLengthExceeded`` when the model cannot read the prompt, ``InvalidRequest`` when all is well with
        the prompt but not with what was asked for, or when all the blocks together are too few.
        """
        if num_prompt_tokens >= self.max_model_len:
            raise ContextLengthExceeded(
                f"the context length is {self.max_model_len} tokens and must hold at least one more than the prompt, "
                f"which has {num_prompt_tokens}",
                param="prompt",
            )
        if asked is not None and num_prompt_tokens + asked > self.max_model_len:
            raise InvalidRequest(
                f"the context length is {self.max_model_len} tokens: the prompt has {num_prompt_tokens}, so max_tokens "
                f"can be {self.max_model_len - num_prompt_tokens} at most, and {asked} were asked for",
                param="max_tokens",
            )
        most = min(self.max_model_len, self.num_blocks * self.block_size + 1) - num_prompt_tokens
        least = 1 if asked is None else asked
        if most < least:
            self._refuse(num_prompt_tokens, least, param="max_tokens" if most > 0 else "prompt")
        return most if asked is None else asked

    def _refuse(self, num_prompt_tokens: int, num_output_tokens: int, *, param: str) -> None:
        needed = -(-(num_prompt_tokens + num_output_tokens - 1) // self.block_size)
        raise InvalidRequest(
            f"{num_prompt_tokens} prompt tokens and {num_output_tokens} to follow need {needed} cache blocks of "
            f"{self.block_size} tokens, and the engine has {self.num_blocks}",
            param=param,
        )


class Slots:
    """What the engine takes at once, running and waiting together. Belongs to the event loop's thread.

    A request that generates takes a slot for each choice; ``unit`` says of what the slots are, and ``param`` names the
    field that asks for them.
    """

    def __init__(self, max_running: int, max_waiting: int, *, unit: str = "choices", param: str = "n") -> None:
        self._total = max_running + max_waiting
        self._unit = unit
        self._param = param
        self.num_taken = 0

    def take(self, count: int) -> None:
        """Raises ``Overloaded`` when there are too few, ``InvalidRequest`` when there never can be enough."""
        if count > self._total:
            raise InvalidRequest(
                f"{self._param} is {count}, and the engine takes {self._total} {self._unit} at once", param=self._param
            )
        if self.num_taken + count > self._total:
            raise Overloaded("the engine's queue is full", retry_after=_RETRY_AFTER_SECONDS)
        self.num_taken += count

    def release(self, count: int) -> None:
        """Take back slots that are no longer needed."""
        self.num_taken -= count
        assert self.num_taken >= 0
