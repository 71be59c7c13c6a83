"""A model whose every token depends on all tokens before it, read back from the cache blocks it wrote them to.

It stands for attention over a paged cache: whoever gets a wrong block, a stale block or a block that is shared but not
yet computed gets other tokens, or an assertion. Each slot holds a hash of the tokens up to and including its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as SequenceOf

from engine_svc.output import Sampled
from engine_svc.runners.interface import RunnerInfo
from engine_svc.scheduling.sequence import Sequence
from engine_svc.scheduling.step import ScheduledSequence

VOCAB_SIZE = 1000


class PagedModel:
    """A runner with a cache of ``num_blocks`` blocks; each step that samples yields ``per_step`` tokens.

    It emits the ids from 1 to ``num_ids``; with few of them, some draft tokens are accepted. A sequence with drafts
    gets one token, and one more for each accepted draft token.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        per_step: int = 1,
        num_ids: int = VOCAB_SIZE - 1,
        max_model_len: int = 1024,
    ) -> None:
        self._info = RunnerInfo("paged", "paged", "int16", "bfloat16", VOCAB_SIZE, max_model_len, num_blocks, (0,))
        self._block_size = block_size
        self._per_step = per_step
        self._num_ids = num_ids
        self._slots = [-1] * (num_blocks * block_size)
        self.num_steps = 0
        self.num_computed = 0
        self.released: list[int] = []

    @property
    def info(self) -> RunnerInfo:
        return self._info

    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        self.num_steps += 1
        for scheduled in batch:
            self._check(scheduled)
        for scheduled in batch:
            self._compute(scheduled)
        return [self._sample(scheduled) for scheduled in batch if scheduled.samples]

    def release(self, sequence: Sequence) -> None:
        assert sequence.seq_id not in self.released
        self.released.append(sequence.seq_id)

    def _check(self, scheduled: ScheduledSequence) -> None:
        """Assert that the cache before the run matches the tokens."""
        sequence = scheduled.sequence
        assert scheduled.num_tokens >= 1
        assert len(sequence.block_table) * self._block_size >= scheduled.start + scheduled.num_tokens
        expected = 0
        for position in range(scheduled.start):
            expected = follow(expected, sequence.token_ids[position])
            assert self._slots[self._slot(sequence, position)] == expected

    def _compute(self, scheduled: ScheduledSequence) -> None:
        sequence, start = scheduled.sequence, scheduled.start
        value = self._slots[self._slot(sequence, start - 1)] if start else 0
        assert len(scheduled.token_ids) == scheduled.num_tokens
        for position, token_id in enumerate(scheduled.token_ids, start=start):
            value = follow(value, token_id)
            self._slots[self._slot(sequence, position)] = value
            self.num_computed += 1

    def _sample(self, scheduled: ScheduledSequence) -> Sampled:
        sequence, drafts = scheduled.sequence, scheduled.drafts
        if not drafts:
            return Sampled(tuple(self._continue(sequence, sequence.num_tokens - 1, self._per_step)))
        token_ids: list[int] = []
        for position, expected in enumerate((*drafts, None), start=sequence.num_tokens - 1):
            token_ids += self._continue(sequence, position, 1)
            if token_ids[-1] != expected:
                break
        return Sampled(tuple(token_ids))

    def _continue(self, sequence: Sequence, position: int, count: int) -> list[int]:
        """The model's next token after this position of the cache."""
        value = self._slots[self._slot(sequence, position)]
        return continuation(value, sequence.index, count, self._num_ids)

    def _slot(self, sequence: Sequence, position: int) -> int:
        block, offset = divmod(position, self._block_size)
        return sequence.block_table[block] * self._block_size + offset


def follow(value: int, token_id: int) -> int:
    """The hash of a history extended by this token."""
    digest = hashlib.blake2b(f"{value} {token_id}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "little")


def continuation(value: int, index: int, count: int, num_ids: int = VOCAB_SIZE - 1) -> list[int]:
    """The model's next token after a history with this hash, different for each choice. Never the id 0."""
    token_ids = []
    for _ in range(count):
        token_ids.append(1 + (value + index) % num_ids)
        value = follow(value, token_ids[-1])
    return token_ids


def expected_output(prompt: SequenceOf[int], index: int, count: int, num_ids: int = VOCAB_SIZE - 1) -> list[int]:
    """The output that a request must get, whatever else runs."""
    value = 0
    for token_id in prompt:
        value = follow(value, token_id)
    return continuation(value, index, count, num_ids)
