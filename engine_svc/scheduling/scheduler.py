"""Continuous batching: what to compute in the next step, and what its results mean.

A step schedules tokens, not phases: a sequence has ``num_uncomputed_tokens`` to be computed, whether they are a prompt,
one new token, or everything after a preemption. Running sequences come first, then waiting ones as long as the token
budget, ``max_num_seqs`` and the free blocks allow.

Requests get equal shares, however many choices they have. Running sequences are ordered by how many older choices of
their request run, then by age: first the oldest choice of every request, then every second one, and so on. The last in
this order is preempted first. Waiting ones start in the order of ``waiting_queue.py``. A request without a running
choice preempts the last in order, if that is not the only running choice of its request.

How much of a prompt a step computes: all that fits its limits if no other prompt competes for them, else at most half,
so that a short prompt does not wait for a long one. While sequences wait for their next token, prompts get only the
time that ``pace.py`` leaves them: first the running ones, of which each gets a token at least and the first a block at
least, then waiting ones, which do not start in a step without room for them.

Why everything finishes: the oldest running choice of the oldest request is scheduled first, may preempt any other, and
was admitted only because all blocks together hold it (``capacity.py``); if none of that request's choices runs, one of
them is the next to start. A sequence starts only when there are blocks for all its known tokens and for one more block
of every running one, so that it is not preempted soon after.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter, itemgetter

from engine_svc.output import ChoiceOutput, Sampled
from engine_svc.scheduling.block_manager import BlockManager
from engine_svc.scheduling.ending import ending_of
from engine_svc.scheduling.pace import Pace, Room
from engine_svc.scheduling.sequence import Sequence, Status
from engine_svc.scheduling.speculation import Speculation
from engine_svc.scheduling.step import Outcome, Plan, ScheduledSequence, StepLimits
from engine_svc.scheduling.waiting_queue import WaitingQueue

_by_age = attrgetter("seq_id")
_by_rank = itemgetter(0)


class Scheduler:
    """Owns every unfinished sequence. Not thread-safe: called by the step loop's thread alone."""

    def __init__(
        self,
        limits: StepLimits,
        blocks: BlockManager,
        speculation: Speculation | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Without ``pace`` the time of a step is not bounded."""
        self._limits = limits
        self._blocks = blocks
        self._speculation = speculation and speculation.within(limits.max_num_batched_tokens)
        self._pace = pace
        self._running: list[Sequence] = []
        self._waiting = WaitingQueue()
        self._blocked: Sequence | None = None
        """The sequence that the last step could not start for lack of blocks, or because of ``max_num_seqs``."""

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_free_blocks(self) -> int:
        return self._blocks.num_free_blocks

    def next_due(self) -> float | None:
        """When the next running sequence is due, by ``time.monotonic``; None if none runs."""
        return min((sequence.resume_at for sequence in self._running), default=None)

    def add(self, sequences: Iterable[Sequence]) -> None:
        """Add new sequences to the waiting queue."""
        for sequence in sequences:
            self._waiting.push(sequence)

    def end(self, sequence: Sequence) -> bool:
        """End a sequence in any state and free its blocks. False if it had ended before."""
        match sequence.status:
            case Status.FINISHED:
                return False
            case Status.RUNNING:
                self._running.remove(sequence)
                self._waiting.note_stop(sequence)
            case Status.WAITING:
                self._waiting.remove(sequence)
        sequence.status = Status.FINISHED
        self._blocks.free(sequence)
        return True

    def schedule(self, now: float) -> Plan:
        """Plan the next step. The batch is empty when no sequence is due before ``next_due``."""
        plan = Plan()
        order = self._in_order()
        self._preempt_for_blocked(order, plan)
        due = [sequence for sequence in order if sequence.resume_at <= now]
        room = self._room(due)
        self._schedule_running(due, order, plan, room)
        self._schedule_waiting(plan, room)
        if self._speculation is not None:
            self._speculation.extend(plan, self._blocks, room.num_drafts())
        return plan

    def learn(self, plan: Plan, seconds: float) -> None:
        """A step took this long, from ``schedule`` to its last output."""
        if self._pace is not None:
            self._pace.learn(plan.batch, seconds)

    def apply(self, batch: list[ScheduledSequence], results: list[Sampled | Exception | None]) -> list[Outcome]:
        """Apply the results, one for each entry of the batch: None where an entry has no output.

        A sequence whose result is an exception is left unchanged, for the caller to end.
        """
        outcomes = (self._apply_one(scheduled, result) for scheduled, result in zip(batch, results, strict=True))
        return [outcome for outcome in outcomes if outcome is not None]

    def check_integrity(self) -> None:
        """Assert that every sequence is in the right queue and the blocks add up."""
        self._blocks.check_integrity(self._running)
        self._waiting.check_integrity(self._running)
        assert self._running == sorted(self._running, key=_by_age), "running out of order"
        assert all(sequence.status is Status.RUNNING for sequence in self._running)
        assert all(sequence.status is Status.WAITING and not sequence.block_table for sequence in self._waiting)
        assert len(self._running) <= self._limits.max_num_seqs
        for sequence in self._running:
            assert 0 <= sequence.num_computed_tokens < sequence.num_tokens
            num_blocks = len(sequence.block_table)
            assert self._blocks.blocks_for(sequence.num_computed_tokens) <= num_blocks
            assert num_blocks <= self._blocks.blocks_for(sequence.num_tokens), "blocks of draft tokens are kept"

    def _in_order(self) -> list[Sequence]:
        """The running sequences, in scheduling order; the last is preempted first."""
        if self._waiting.num_requests_running == len(self._running):
            return list(self._running)
        num_older: Counter[int] = Counter()
        ranks: list[tuple[int, Sequence]] = []
        for sequence in self._running:
            ranks.append((num_older[sequence.group_id], sequence))
            num_older[sequence.group_id] += 1
        return [sequence for _, sequence in sorted(ranks, key=_by_rank)]

    def _preempt_for_blocked(self, order: list[Sequence], plan: Plan) -> None:
        """Preempt a further choice of another request for a blocked request without a running choice.

        At most one per step, so that no step is all preemptions.
        """
        blocked = self._blocked
        if blocked is None or blocked.status is not Status.WAITING or self._waiting.num_running(blocked):
            return
        if order and self._waiting.num_running(order[-1]) > 1:
            self._preempt(order.pop(), plan)

    def _room(self, due: list[Sequence]) -> Room:
        """The room for prompts in a step of these running sequences."""
        num_prompts = sum(not sequence.is_decoding for sequence in due)
        if self._blocked is None and len(self._running) < self._limits.max_num_seqs:
            num_prompts += self._waiting.num_requests_to_start
        share = 1.0 if num_prompts <= 1 else 0.5
        if self._pace is None:
            return Room(share)
        return self._pace.room((sequence for sequence in due if sequence.is_decoding), share)

    def _schedule_running(self, due: list[Sequence], order: list[Sequence], plan: Plan, room: Room) -> None:
        for num_after, sequence in zip(reversed(range(len(due))), due, strict=True):
            if sequence.status is Status.RUNNING:
                num_tokens = self._num_tokens_for(sequence, plan.num_tokens + num_after, room)
                if self._make_room(sequence, num_tokens, order, plan):
                    self._add(sequence, num_tokens, plan, room)

    def _schedule_waiting(self, plan: Plan, room: Room) -> None:
        self._blocked = None
        for sequence in self._waiting.turns():
            if plan.num_tokens >= self._limits.max_num_batched_tokens or not room.is_open:
                break
            if len(self._running) >= self._limits.max_num_seqs:
                self._blocked = sequence
                break
            siblings = [sibling for sibling in sequence.siblings if sibling.status is Status.RUNNING]
            parent = next(filter(self._has_computed_prompt, siblings), None)
            if siblings and parent is None:
                continue
            if not self._start(sequence, parent):
                self._blocked = sequence
                break
            plan.admitted.append(sequence)
            self._add(sequence, self._num_tokens_for(sequence, plan.num_tokens, room), plan, room)

    def _num_tokens_for(self, sequence: Sequence, num_reserved: int, room: Room) -> int:
        limits = self._limits
        share = int(room.share * limits.max_num_batched_tokens)
        budget = min(share, limits.max_prefill_chunk, limits.max_num_batched_tokens - num_reserved)
        num_tokens = min(sequence.num_uncomputed_tokens, budget)
        return max(1, room.tokens(sequence.num_computed_tokens, num_tokens))

    def _add(self, sequence: Sequence, num_tokens: int, plan: Plan, room: Room) -> None:
        if not sequence.is_decoding:
            room.take(sequence.num_computed_tokens, num_tokens)
        plan.add(sequence, num_tokens)

    def _has_computed_prompt(self, sequence: Sequence) -> bool:
        """Whether another choice of the request can start from this one's blocks."""
        num_shareable = self._blocks.num_shareable_blocks(sequence) * self._blocks.block_size
        return sequence.num_computed_tokens >= num_shareable

    def _start(self, sequence: Sequence, parent: Sequence | None) -> bool:
        """Start a waiting sequence, if there are blocks for it."""
        headroom = len(self._running)
        if parent is None:
            started = self._blocks.allocate(sequence, headroom=headroom)
        else:
            started = self._blocks.fork(parent, sequence, headroom=headroom)
        if started:
            sequence.status = Status.RUNNING
            self._waiting.remove(sequence)
            self._waiting.note_start(sequence)
            insort(self._running, sequence, key=_by_age)
            if not sequence.num_preemptions:
                sequence.num_cached_tokens = sequence.num_computed_tokens
        return started

    def _make_room(self, sequence: Sequence, num_tokens: int, order: list[Sequence], plan: Plan) -> bool:
        """Get blocks for the next tokens, preempting from the end of ``order``; False if it preempts ``sequence``."""
        while not self._blocks.grow(sequence, sequence.num_computed_tokens + num_tokens):
            last = order.pop()
            self._preempt(last, plan)
            if last is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence, plan: Plan) -> None:
        """Take everything from a running sequence except its tokens."""
        self._running.remove(sequence)
        self._blocks.free(sequence)
        sequence.status = Status.WAITING
        sequence.num_preemptions += 1
        sequence.resume_at = 0.0
        sequence.drafter = None
        self._waiting.note_stop(sequence)
        self._waiting.push(sequence)
        plan.preempted.append(sequence)

    def _apply_one(self, scheduled: ScheduledSequence, result: Sampled | Exception | None) -> Outcome | None:
        sequence = scheduled.sequence
        if isinstance(result, Exception):
            return sequence, result
        output = self._append(sequence, result) if result is not None else None
        # The last token counts as computed only once another follows it, so that after a step without a token it is
        # computed again, for the token after it. Rejected draft tokens come after it and never count.
        computed = scheduled.start + scheduled.num_tokens
        sequence.num_computed_tokens = min(computed, sequence.num_tokens - 1)
        self._blocks.publish(sequence, scheduled.start)
        self._blocks.trim(sequence)
        if sequence.finish_reason is not None:
            self.end(sequence)
        return (sequence, output) if output is not None else None

    def _append(self, sequence: Sequence, sampled: Sampled) -> ChoiceOutput | None:
        """Append the tokens that belong to a sequence; None if there is no output and it continues."""
        ending = ending_of(sequence, sampled)
        sequence.resume_at = sampled.resume_at
        if (prompt := sampled.prompt) is not None:
            sequence.num_prompt_logprobs += len(prompt.token_ids)
        if ending is None:
            sequence.token_ids.extend(sampled.token_ids)
            if not sampled.token_ids and prompt is None:
                return None
            return ChoiceOutput(sequence.index, sampled.token_ids, sampled.logprobs, prompt=prompt)
        token_ids = sampled.token_ids[: ending.num_tokens]
        sequence.token_ids.extend(token_ids)
        sequence.finish_reason = ending.finish_reason
        logprobs = sampled.logprobs[: ending.num_tokens]
        return ChoiceOutput(sequence.index, token_ids, logprobs, ending.finish_reason, ending.matched_token_id, prompt)
