from __future__ import annotations

import math
import time

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from engine_svc.request import FinishReason, Request, Script
from engine_svc.runners.interface import RunnerInfo
from engine_svc.runners.simulated.runner import OPEN_ENDED_TOKENS, SimulatedRunner
from engine_svc.scheduling.sequence import choices_of
from tests.engine_svc import given
from tests.engine_svc.given import Answer, Running

EOS = 258
INFO = RunnerInfo("simulated", "simulated", "float32", "float32", 259, 8192, 64, (EOS,), simulated=True)


def answer(request: Request, *, num_blocks: int = 64, chunk: int = 64) -> Answer:
    """The output of a request that runs alone."""
    running = Running(SimulatedRunner(INFO), given.scheduler(num_blocks, 16, chunk=chunk))
    number = running.add(request)
    while not running.answers[number].is_over:
        running.step()
    assert running.answers[number].error is None
    return running.answers[number]


def scripted(
    *steps: tuple[int, ...],
    repeat: int = 1,
    delay: float = 0.0,
    finish: FinishReason = "stop",
    max_tokens: int = 100,
    min_tokens: int = 0,
    ignore_eos: bool = False,
    n: int = 1,
    eos: tuple[int, ...] = (EOS,),
    logprobs: int | None = None,
) -> Request:
    script = Script(steps, repeat, delay, finish)
    return given.request(
        5, max_tokens, n=n, min_tokens=min_tokens, ignore_eos=ignore_eos, eos=eos, script=script, logprobs=logprobs
    )


def chunks(output: Answer) -> list[tuple[int, ...]]:
    return [chunk.token_ids for chunk in output.chunks]


def test_a_step_of_the_script_is_a_step_of_the_engine() -> None:
    output = answer(scripted((65, 66), (67,), (68, 69, 70)))
    assert chunks(output) == [(65, 66), (67,), (68, 69, 70), (EOS,)]
    assert output.finish_reasons == {0: "stop"}
    assert output.chunks[-1].matched_token_id == EOS


def test_empty_steps_emit_nothing_and_the_output_continues() -> None:
    output = answer(scripted((), (65,), (), (), (66,), ()))
    assert chunks(output) == [(65,), (66,), (EOS,)]


def test_a_script_is_repeated() -> None:
    assert chunks(answer(scripted((65,), (66,), repeat=3))) == [(65,), (66,)] * 3 + [(EOS,)]


@pytest.mark.parametrize("request_", [scripted(), scripted((65,), repeat=0)])
def test_a_script_without_steps_ends_at_once(request_: Request) -> None:
    assert chunks(answer(request_)) == [(EOS,)]


def test_finish_length_ends_with_the_last_token() -> None:
    output = answer(scripted((65,), (66, 67), finish="length"))
    assert chunks(output) == [(65,), (66, 67)]
    assert output.finish_reasons == {0: "length"}
    assert output.chunks[-1].matched_token_id is None


def test_finish_length_of_nothing() -> None:
    output = answer(scripted(finish="length"))
    assert (chunks(output), output.finish_reasons) == ([()], {0: "length"})
    assert output.stats is not None
    assert output.stats.first_token_at == 0.0


def test_finish_length_after_an_empty_step() -> None:
    output = answer(scripted((65,), (), finish="length"))
    assert (chunks(output), output.finish_reasons) == ([(65,), ()], {0: "length"})


@pytest.mark.parametrize("per_step", [1, 2, 5])
def test_max_tokens_cuts_a_script(per_step: int) -> None:
    output = answer(scripted(*[tuple(range(65, 65 + per_step))] * 20, max_tokens=7))
    assert len(output.token_ids[0]) == 7
    assert output.finish_reasons == {0: "length"}


def test_an_end_token_inside_a_script_ends_it() -> None:
    output = answer(scripted((65, EOS, 66), (67,)))
    assert (output.token_ids[0], output.finish_reasons) == ([65, EOS], {0: "stop"})


def test_the_end_token_of_the_request_is_emitted() -> None:
    assert answer(scripted((65,), eos=(7, 9))).token_ids[0] == [65, 7]


def test_without_any_end_token_a_script_just_ends() -> None:
    output = answer(scripted((65,), eos=()))
    assert (output.token_ids[0], output.finish_reasons) == ([65], {0: "length"})


def test_ignore_eos_continues_with_the_fixed_text() -> None:
    output = answer(scripted((65,), ignore_eos=True, max_tokens=12))
    assert output.finish_reasons == {0: "length"}
    assert len(output.token_ids[0]) == 12
    assert EOS not in output.token_ids[0]


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_min_tokens_are_filled_up(finish: FinishReason) -> None:
    output = answer(scripted((65,), (66,), min_tokens=6, finish=finish))
    assert output.token_ids[0][:2] == [65, 66]
    assert len(output.token_ids[0]) == 6 + (finish == "stop")
    assert output.finish_reasons == {0: finish}


def test_every_choice_plays_the_script() -> None:
    output = answer(scripted((65,), (66,), n=3))
    assert output.token_ids == {index: [65, 66, EOS] for index in range(3)}


def test_without_a_script_exactly_max_tokens_of_printable_text() -> None:
    output = answer(given.request(5, 30, eos=[EOS]))
    assert output.finish_reasons == {0: "length"}
    assert len(output.token_ids[0]) == 30
    assert all(65 <= token_id <= 122 for token_id in output.token_ids[0])
    assert len(set(output.token_ids[0])) > 10


def test_without_a_script_and_max_tokens_a_text_of_fixed_length() -> None:
    output = answer(given.request(5, 500, eos=[EOS], open_ended=True))
    assert output.finish_reasons == {0: "stop"}
    assert len(output.token_ids[0]) == OPEN_ENDED_TOKENS + 1


def test_an_open_answer_ends_with_the_context() -> None:
    assert answer(given.request(5, 10, eos=[EOS], open_ended=True)).finish_reasons == {0: "length"}


def text(prompt: list[int], *, seed: int = 1, temperature: float = 1.0, n: int = 1, index: int = 0) -> list[int]:
    request = given.request(prompt, 100, eos=[EOS], seed=seed, temperature=temperature, n=n)
    return answer(request).token_ids[index]


def test_the_text_is_a_function_of_prompt_seed_and_choice() -> None:
    texts = [text([1, 2]), text([2, 1]), text([1, 2], seed=2), text([1, 2], n=2, index=1)]
    assert len({tuple(words) for words in texts}) == 4
    assert text([1, 2]) == texts[0] == text([1, 2], n=2, index=0)


def test_greedy_texts_depend_on_neither_seed_nor_choice() -> None:
    greedy = [text([1, 2], temperature=0.0), text([1, 2], temperature=0.0, seed=5, n=2, index=1)]
    assert greedy[0] == greedy[1] != text([1, 2])


def test_the_text_survives_preemption_and_chunking() -> None:
    requests = [given.request([number] * 30, 60, eos=[EOS], seed=3) for number in (1, 2)]
    running = Running(SimulatedRunner(INFO), given.scheduler(8, 16, chunk=7))
    numbers = [running.add(request) for request in requests]
    running.run()
    assert running.sample("vllm:num_preemptions_total") > 0
    for number, request in zip(numbers, requests, strict=True):
        assert running.answers[number].token_ids == answer(request).token_ids


@settings(max_examples=40)
@for_all(
    st.lists(st.lists(st.integers(65, 90), max_size=5).map(tuple), max_size=12),
    st.integers(1, 3),
    st.integers(1, 40),
)
def test_scripts_survive_preemption(steps: list[tuple[int, ...]], repeat: int, max_tokens: int) -> None:
    running = Running(SimulatedRunner(INFO), given.scheduler(6, 16, chunk=5))
    request = scripted(*steps, repeat=repeat, max_tokens=max_tokens)
    numbers = [running.add(request) for _ in range(5)]
    running.run()
    expected = [token_id for step in steps * repeat for token_id in step] + [EOS]
    for number in numbers:
        assert running.answers[number].token_ids[0] == expected[:max_tokens]


def test_a_delayed_output_is_not_due_and_delays_no_other() -> None:
    running = Running(SimulatedRunner(INFO), given.scheduler(64, 16))
    slow = running.add(scripted((65,), (66,), delay=3600.0))
    quick = running.add(scripted((67,), (68,)))
    running.run()
    assert running.answers[quick].is_over
    assert not running.answers[slow].is_over
    assert running.answers[slow].chunks == []
    due = running.engine.seconds_until_due()
    assert due is not None
    assert 3000 < due <= 3600


def test_delays_lie_before_each_step() -> None:
    started = time.monotonic()
    assert chunks(answer(scripted((65,), (66,), (), delay=0.02))) == [(65,), (66,), (EOS,)]
    assert time.monotonic() - started >= 0.06


def test_a_preempted_sequence_keeps_its_delay() -> None:
    runner = SimulatedRunner(INFO)
    sequence = choices_of(scripted((65,), delay=3600.0), 1)[0]
    answer_ = [runner._sample(sequence, now) for now in (100.0, 200.0, 3700.0)]
    assert [(sampled.token_ids, sampled.resume_at) for sampled in answer_] == [
        ((), 3700.0),
        ((), 3700.0),
        ((65,), 0.0),
    ]


@pytest.mark.parametrize("count", [0, 1, 20])
def test_logprobs_are_finite_and_the_chosen_token_is_the_best(count: int) -> None:
    output = answer(scripted((65, 258), (0,), logprobs=count, eos=(7,)))
    entries = [pair for chunk in output.chunks for pair in zip(chunk.token_ids, chunk.logprobs, strict=True)]
    assert [token for token, _ in entries] == [65, 258, 0, 7]
    for token, entry in entries:
        assert len(entry.top) == count
        assert len({alternative for alternative, _ in entry.top}) == count
        assert all(0 <= alternative < INFO.vocab_size for alternative, _ in entry.top)
        values = [value for _, value in entry.top]
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1.0
        if count:
            assert entry.top[0] == (token, entry.logprob)


def test_no_logprobs_unless_asked_for() -> None:
    assert all(chunk.logprobs == () for chunk in answer(scripted((65,), (66,))).chunks)


def test_a_step_takes_its_time() -> None:
    runner = SimulatedRunner(INFO, step_seconds=0.02)
    running = Running(runner, given.scheduler(64, 16))
    running.add(scripted((65,), (66,)))
    started = time.monotonic()
    assert running.run() == 3
    assert time.monotonic() - started >= 0.06


def test_a_released_sequence_starts_anew() -> None:
    runner = SimulatedRunner(INFO)
    sequence = choices_of(scripted((65,), (66,)), 1)[0]
    assert runner._sample(sequence, 0.0).token_ids == (65,)
    runner.release(sequence)
    runner.release(sequence)
    assert runner._sample(sequence, 0.0).token_ids == (65,)


@pytest.mark.parametrize("chunk", [64, 7])
def test_prompt_logprobs_are_made_up_too(chunk: int) -> None:
    output = answer(given.request(30, 5, prompt_logprobs=2), chunk=chunk)

    assert output.prompt_token_ids == list(range(2, 31))
    assert [entry.logprob for entry in output.prompt_logprobs] == [-math.log(2)] * 29
    assert [token_id for token_id, _ in output.prompt_logprobs[0].top] == [2, 3]
    assert output.token_ids == answer(given.request(30, 5)).token_ids
