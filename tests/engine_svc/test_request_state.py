from __future__ import annotations

from engine_svc.output import ChoiceOutput, RequestHead, RequestOutput, RequestStats
from engine_svc.request_state import RequestState
from engine_svc.scheduling.sequence import Status
from tests.engine_svc import given


def test_outputs_of_a_request_from_head_to_stats() -> None:
    state = RequestState(given.request(5, 3, seed=9), group_id=20)
    sequence = state.sequences[0]
    assert (sequence.seq_id, state.has_started) == (20, False)
    sequence.num_cached_tokens = 4
    state.start(sequence, 2.0)
    assert state.has_started
    outputs = [ChoiceOutput(0, (token_id,)) for token_id in (7, 8, 9)]
    assert state.output([outputs[0]], 3.0) == RequestOutput(20, [outputs[0]], RequestHead(5, 4, 9))
    assert state.output([outputs[1]], 4.0) == RequestOutput(20, [outputs[1]])
    sequence.status = Status.FINISHED
    sequence.num_preemptions = 2
    assert state.output([outputs[2]], 5.0) == RequestOutput(
        20, [outputs[2]], stats=RequestStats(1.0, 2.0, 3.0, 5.0, num_preemptions=2)
    )


def test_a_request_finishes_with_its_last_choice() -> None:
    state = RequestState(given.request(n=2), group_id=0)
    first, second = state.sequences
    first.status = Status.FINISHED
    assert not state.output([ChoiceOutput(0, (7,), (), "length")], 1.0).is_last
    second.status = Status.FINISHED
    assert state.output([], 2.0).is_last


def test_an_end_without_tokens_is_no_token() -> None:
    state = RequestState(given.request(), group_id=0)
    state.output([ChoiceOutput(0, (), (), "length")], 3.0)
    assert (state.first_token_at, state.last_token_at) == (0.0, 0.0)
    state.output([ChoiceOutput(0, (), (), "length"), ChoiceOutput(1, (7,))], 4.0)
    assert (state.first_token_at, state.last_token_at) == (4.0, 4.0)
