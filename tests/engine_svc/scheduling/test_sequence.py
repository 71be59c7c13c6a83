from __future__ import annotations

from engine_svc.scheduling.sequence import Status, choices_of
from tests.engine_svc import given


def test_a_new_sequence_has_its_prompt_to_compute() -> None:
    sequence = given.sequence([5, 6, 7])
    assert (sequence.num_tokens, sequence.num_prompt_tokens, sequence.num_output_tokens) == (3, 3, 0)
    assert sequence.num_uncomputed_tokens == 3
    assert sequence.status is Status.WAITING


def test_counts_follow_the_tokens() -> None:
    sequence = given.sequence([5, 6, 7])
    sequence.num_computed_tokens = 3
    sequence.token_ids += [8, 9]
    assert (sequence.num_tokens, sequence.num_output_tokens, sequence.num_uncomputed_tokens) == (5, 2, 2)


def test_choices_share_a_group_and_nothing_else() -> None:
    one, other = choices_of(given.request(n=2), 10), choices_of(given.request(n=3), 12)
    assert [sequence.seq_id for sequence in (*one, *other)] == [10, 11, 12, 13, 14]
    assert [sequence.group_id for sequence in (*one, *other)] == [10, 10, 12, 12, 12]
    assert one[0].siblings == one
    one[0].token_ids.append(99)
    assert one[1].num_output_tokens == 0


def test_an_only_choice_has_no_siblings() -> None:
    assert choices_of(given.request(n=1), 0)[0].siblings == ()


def test_which_tokens_end_it() -> None:
    request = given.request(eos=[1, 2], stop=[3])
    assert choices_of(request, 0)[0].end_token_ids == {1, 2, 3}
    request = given.request(eos=[1, 2], stop=[2, 3], ignore_eos=True)
    assert choices_of(request, 0)[0].end_token_ids == {2, 3}


def test_prompt_logprobs_allow_skipping_reported_tokens_only() -> None:
    one, other = choices_of(given.request(9, n=2, prompt_logprobs=0), 0)
    assert [(choice.needs_prompt_logprobs, choice.num_skippable_tokens) for choice in (one, other)] == [
        (True, 0),
        (False, 8),
    ]
    one.num_prompt_logprobs = 5
    assert (one.needs_prompt_logprobs, one.num_skippable_tokens) == (True, 5)
    one.num_prompt_logprobs = 8
    one.token_ids += [1, 2]
    assert (one.needs_prompt_logprobs, one.num_skippable_tokens) == (False, 10)
    assert not choices_of(given.request(9), 0)[0].needs_prompt_logprobs
