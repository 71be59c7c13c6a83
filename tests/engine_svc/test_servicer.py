from __future__ import annotations

import asyncio
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from modelfiles.token_table import simulated_table
from protos.v1 import engine_pb2
from svclib.errors import ContextLengthExceeded, DeadlineExceeded, InvalidRequest, Overloaded, ServiceError, Unsupported
from tests.engine_svc.paged_model import PagedModel
from tests.engine_svc.serving import EOS, Served, finish_of, prompt, script, serving, tokens_of


async def refused(served: Served, request: engine_pb2.GenerateRequest) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await served.ask(request)
    return caught.value


async def test_a_script_is_emitted_step_by_step() -> None:
    async with serving() as served:
        event = await served.ask(prompt(simulate=script([72], [101, 108], [108, 111])))
    assert tokens_of(event) == [72, 101, 108, 108, 111, EOS]
    assert finish_of(event) == ["stop"]
    assert event.chunks[-1].matched_token_id == EOS
    assert not event.chunks[0].HasField("output_logprobs")


async def test_events_come_while_the_request_runs() -> None:
    async with serving() as served, served.open(prompt(simulate=script([65], [66], [67], delay_ms=50))) as stream:
        events = [event async for event in stream]
    assert [token_id for event in events for token_id in tokens_of(event)] == [65, 66, 67, EOS]
    assert len(events) > 1
    assert [event.HasField("prompt_tokens") for event in events] == [True] + [False] * (len(events) - 1)
    assert [event.HasField("stats") for event in events] == [False] * (len(events) - 1) + [True]


async def test_a_slow_reader_gets_several_chunks_at_once() -> None:
    async with serving() as served, served.open(prompt(simulate=script(*[[65]] * 50))) as stream:
        await anext(stream)
        await served.until_idle()
        rest = [event async for event in stream]
    assert sum(len(tokens_of(event)) for event in rest) >= 40
    assert len(rest) < 10


async def test_the_first_event_has_counts_and_the_last_has_stats() -> None:
    async with serving() as served:
        first = await served.ask(prompt(40, max_tokens=3, seed=7))
        second = await served.ask(prompt(40, max_tokens=3, seed=0))
    assert (first.prompt_tokens, first.cached_tokens, first.seed) == (40, 0, 7)
    assert (second.prompt_tokens, second.cached_tokens, second.seed) == (40, 32, 0)
    stats = first.stats
    times = [stats.queue_enter_at, stats.prefill_start_at, stats.first_token_at, stats.last_token_at]
    assert times == sorted(times)
    assert times[0] > 1.7e9
    assert stats.preemptions == 0


async def test_a_seed_is_drawn_and_can_be_used_again() -> None:
    async with serving() as served:
        one, other = await served.ask(prompt(max_tokens=30)), await served.ask(prompt(max_tokens=30))
        again = await served.ask(prompt(max_tokens=30, seed=one.seed))
    assert one.seed != other.seed
    assert max(one.seed, other.seed) < 2**63
    assert tokens_of(one) == tokens_of(again) != tokens_of(other)


async def test_absent_max_tokens_make_the_request_open_ended() -> None:
    async with serving(max_model_len=200) as served:
        open_ended = await served.ask(prompt(10))
        to_the_end = await served.ask(prompt(10, ignore_eos=True))
    assert (len(tokens_of(open_ended)), finish_of(open_ended)) == (65, ["stop"])
    assert (len(tokens_of(to_the_end)), finish_of(to_the_end)) == (190, ["length"])


async def test_logprobs_travel_beside_the_tokens() -> None:
    async with serving() as served:
        event = await served.ask(prompt(simulate=script([65, 66]), logprobs=3))
        bare = await served.ask(prompt(simulate=script([65, 66]), logprobs=0))
    logprobs = event.chunks[0].output_logprobs
    assert list(logprobs.token_ids) == [65, 66]
    assert all(math.isfinite(value) and value <= 0 for value in logprobs.token_logprobs)
    assert [list(top.token_ids) for top in logprobs.top_logprobs] == [[65, 66, 67], [66, 67, 68]]
    assert [len(top.token_ids) for top in bare.chunks[0].output_logprobs.top_logprobs] == [0, 0]


async def test_log_probabilities_of_the_prompt_come_before_the_output() -> None:
    async with (
        serving(max_prefill_chunk=16) as served,
        served.open(prompt(range(40), simulate=script([65], delay_ms=200), prompt_logprobs=2, n=2)) as stream,
    ):
        events = [event async for event in stream]
    told = engine_pb2.GenerateEvent()
    for event in events:
        told.MergeFrom(event)
    assert list(told.input_logprobs.token_ids) == list(range(1, 40))
    assert list(told.input_logprobs.token_logprobs) == pytest.approx([-math.log(2)] * 39)
    assert [list(top.token_ids) for top in told.input_logprobs.top_logprobs[:2]] == [[1, 2], [2, 3]]
    assert [tokens_of(told, index) for index in range(2)] == [[65, EOS]] * 2
    assert events[0].prompt_tokens == 40
    assert not events[-1].HasField("input_logprobs")


async def test_too_many_log_probabilities_of_the_prompt_are_refused_by_name() -> None:
    async with serving() as served:
        error = await refused(served, prompt(prompt_logprobs=21))
        assert isinstance(error, InvalidRequest)
        assert error.param == "prompt_logprobs"
        assert not (await served.ask(prompt(simulate=script([65])))).HasField("input_logprobs")


@pytest.mark.parametrize("n", [2, 5])
async def test_choices_are_interleaved(n: int) -> None:
    async with serving() as served:
        event = await served.ask(prompt(40, n=n, max_tokens=10, seed=1))
    texts = [tokens_of(event, index) for index in range(n)]
    assert [len(text) for text in texts] == [10] * n
    assert len({tuple(text) for text in texts}) == n
    assert [finish_of(event, index) for index in range(n)] == [["length"]] * n


async def test_a_stopped_choice_ends_and_the_others_continue() -> None:
    said: dict[int, list[int]] = {0: [], 1: []}
    request = prompt(n=2, simulate=script(*[[65]] * 30, delay_ms=20))
    async with serving() as served, served.open(request) as stream:
        async for event in stream:
            if not said[1]:
                stream.send(engine_pb2.StopChoices(indices=[1]))
            for index in said:
                said[index] += tokens_of(event, index)
    assert said[0] == [65] * 30 + [EOS]
    assert len(said[1]) < 30


async def test_choices_stopped_at_the_same_moment_all_stop() -> None:
    said: dict[int, list[int]] = {0: [], 1: [], 2: []}
    request = prompt(n=3, simulate=script(*[[65]] * 40, delay_ms=20))
    async with serving() as served, served.open(request) as stream:
        async for event in stream:
            if not said[1]:
                for index in (0, 1):
                    stream.send(engine_pb2.StopChoices(indices=[index]))
            for index in said:
                said[index] += tokens_of(event, index)
    assert len(said[0]) < 40
    assert len(said[1]) < 40
    assert said[2] == [65] * 40 + [EOS]


async def test_stopping_every_choice_ends_the_request_with_its_stats() -> None:
    async with serving() as served, served.open(prompt(simulate=script(*[[65]] * 1000, delay_ms=20))) as stream:
        await anext(stream)
        stream.send(engine_pb2.StopChoices(indices=[0]))
        rest = [event async for event in stream]
        assert rest[-1].HasField("stats")
        await served.until_idle()


async def test_stopping_an_unknown_choice_is_refused() -> None:
    async with serving() as served, served.open(prompt(simulate=script(*[[65]] * 1000, delay_ms=20))) as stream:
        stream.send(engine_pb2.StopChoices(indices=[1]))
        with pytest.raises(InvalidRequest):
            async for _ in stream:
                pass
        await served.until_idle()


BAD: list[tuple[dict[str, Any], str]] = [
    *(({"temperature": value}, "temperature") for value in (-0.1, 2.1, math.nan, math.inf)),
    *(({"top_p": value}, "top_p") for value in (-1.0, 1.01, math.nan)),
    *(({"top_k": value}, "top_k") for value in (-2, -(2**31))),
    *(({"min_p": value}, "min_p") for value in (-0.1, 1.1)),
    ({"frequency_penalty": 9.0}, "frequency_penalty"),
    ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"repetition_penalty": 0.0}, "repetition_penalty"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 2**32 - 1}, "max_tokens"),
    ({"max_tokens": 8190}, "max_tokens"),
    ({"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
    *(({"n": value}, "n") for value in (0, 129, 10**9)),
    ({"logprobs": 21}, "logprobs"),
    ({"stop_token_ids": [259]}, "stop_token_ids"),
    ({"logit_bias": {99999999: 5.0}}, "logit_bias"),
    ({"logit_bias": {5: 101.0}}, "logit_bias"),
    ({"logit_bias": {5: math.nan}}, "logit_bias"),
    ({"tokens": []}, "prompt"),
    ({"tokens": [1] * 500_000}, "prompt"),
    ({"tokens": [1, 99999999]}, "prompt"),
    ({"eos": [259]}, "eos_token_ids"),
    ({"simulate": script([259])}, "simulate.steps"),
    ({"simulate": script([1], repeat=2**32 - 1)}, "simulate"),
    ({"simulate": script([1] * 300_000)}, "simulate"),
    ({"simulate": script(*[[]] * 200_000)}, "simulate"),
    ({"simulate": script([1], delay_ms=-1.0)}, "simulate.delay_ms"),
    ({"simulate": script([1], delay_ms=math.nan)}, "simulate.delay_ms"),
    ({"simulate": script([1], finish="")}, "simulate.finish"),
    ({"simulate": script([1], finish="tool_calls")}, "simulate.finish"),
]


async def test_invalid_requests_are_refused_by_name_and_the_next_one_works() -> None:
    async with serving() as served:
        for arguments, param in BAD:
            error = await refused(served, prompt(**arguments))
            assert isinstance(error, InvalidRequest), arguments
            assert error.param == param, arguments
        assert finish_of(await served.ask(prompt(max_tokens=3))) == ["length"]
        await served.until_idle()


async def test_zero_is_a_value() -> None:
    """Every present field is kept, also when it equals the protobuf default."""
    async with serving() as served:
        zeros = await served.ask(
            prompt(
                simulate=script([65], repeat=0, delay_ms=0.0), temperature=0.0, top_p=0.0, top_k=0, min_p=0.0,
                frequency_penalty=0.0, presence_penalty=0.0, min_tokens=0, seed=0, logprobs=0, ignore_eos=False,
            )
        )  # fmt: skip
        all_tokens = await served.ask(prompt(max_tokens=2, top_k=-1))
    assert tokens_of(zeros) == [EOS]
    assert zeros.seed == 0
    assert zeros.chunks[0].HasField("output_logprobs")
    assert finish_of(all_tokens) == ["length"]


async def test_a_request_without_sampling_parameters_takes_all_defaults() -> None:
    async with serving() as served:
        event = await served.ask(engine_pb2.GenerateRequest(request_id="r", input_ids=[1], eos_token_ids=[EOS]))
    assert finish_of(event) == ["stop"]


async def test_the_models_own_end_tokens_hold_when_none_are_given() -> None:
    async with serving() as served:
        assert tokens_of(await served.ask(prompt(simulate=script([65]), eos=[]))) == [65, EOS]


async def test_a_script_needs_a_simulated_model() -> None:
    async with serving(lambda _settings: PagedModel(64, 16)) as served:
        error = await refused(served, prompt(simulate=script([1])))
        assert isinstance(error, Unsupported)
        assert error.param == "simulate"
        assert (await served.stub.GetModelInfo(engine_pb2.ModelInfoRequest())).simulated is False


async def test_a_prompt_beyond_the_context_is_refused_two_hundred_times() -> None:
    async with serving(max_model_len=100) as served:
        for _ in range(200):
            error = await refused(served, prompt(101))
            assert isinstance(error, ContextLengthExceeded)
            assert "100" in error.message
            assert "101" in error.message
        assert finish_of(await served.ask(prompt(50, max_tokens=3))) == ["length"]


async def test_a_request_larger_than_the_cache_is_refused_at_once() -> None:
    async with serving(num_blocks=4, block_size=16, max_model_len=1024) as served:
        error = await refused(served, prompt(80, max_tokens=1))
        assert isinstance(error, InvalidRequest)
        assert finish_of(await served.ask(prompt(8, max_tokens=4))) == ["length"]


async def test_a_full_queue_refuses_and_slots_are_released_at_once() -> None:
    forever = script([65], repeat=1000, delay_ms=1000)
    async with serving(max_num_seqs=1, max_waiting=4) as served:
        async with served.open(prompt(n=3, simulate=forever)), served.open(prompt(n=2, simulate=forever)):
            error = await refused(served, prompt(simulate=forever))
            assert isinstance(error, Overloaded)
            assert error.retry_after is not None
            assert isinstance(await refused(served, prompt(n=6)), InvalidRequest)
        assert finish_of(await served.ask(prompt(max_tokens=3))) == ["length"]
        await served.until_idle()


async def test_a_deadline_ends_a_request_and_frees_its_blocks() -> None:
    async with serving() as served:
        with pytest.raises(DeadlineExceeded):
            async with served.open(prompt(simulate=script([65], repeat=1000, delay_ms=50)), timeout=0.2) as stream:
                async for _ in stream:
                    pass
        await served.until_idle()


async def test_two_hundred_abandoned_requests_leave_nothing_behind() -> None:
    chance = random.Random(7)

    async def abandon(served: Served, number: int) -> None:
        steps = script([65], repeat=60, delay_ms=chance.choice([0.0, 1.0]))
        request = prompt([number % 5] * chance.randrange(1, 90), n=1 + number % 3, simulate=steps)
        async with served.open(request) as stream:
            for _ in range(chance.choice([0, 0, 1, 3, 10])):
                await anext(stream, None)
            await asyncio.sleep(chance.choice([0.0, 0.001, 0.01]))

    async with serving(num_blocks=40, max_num_seqs=8, max_prefill_chunk=16) as served:
        before = await served.loads()
        await asyncio.gather(*(abandon(served, number) for number in range(200)))
        after = await served.until_idle()
        assert after == before
        assert finish_of(await served.ask(prompt(20, max_tokens=3))) == ["length"]


async def test_a_lost_session_ends_its_requests() -> None:
    async with serving() as served:
        async with served.open(prompt(simulate=script([65], repeat=1000, delay_ms=1000))):
            await served.until(lambda loads: loads.num_running_reqs == 1)
            await served.client.close()
        await served.until_idle()


async def test_many_streams_at_once_each_get_their_own() -> None:
    async def ask(served: Served, number: int) -> None:
        steps = [[(number + position) % 256 for position in range(count)] for count in (1, 0, 2, 5, 1)]
        event = await served.ask(prompt([number % 3] * 30, simulate=script(*steps)))
        assert tokens_of(event) == [token_id for step in steps for token_id in step] + [EOS]

    async with serving(num_blocks=30, max_num_seqs=16) as served:
        await asyncio.gather(*(ask(served, number) for number in range(200)))
        await served.until_idle()


async def test_the_model_describes_itself() -> None:
    async with serving(max_model_len=100, num_blocks=9, block_size=8, max_num_seqs=3) as served:
        info = await served.stub.GetModelInfo(engine_pb2.ModelInfoRequest())
    assert info == engine_pb2.ModelInfo(
        model_path="simulated",
        model_type="simulated",
        max_context_length=100,
        vocab_size=259,
        eos_token_ids=[EOS],
        simulated=True,
        dtype="float32",
        block_size=8,
        num_blocks=9,
        max_num_seqs=3,
        tasks=["generate"],
        supports_constraints=True,
        vocabulary_hash=simulated_table().vocabulary_hash(),
        kv_cache_dtype="float32",
    )


async def test_loads_count_running_and_waiting_sequences() -> None:
    forever = script([65], repeat=1000, delay_ms=1000)
    async with serving(max_num_seqs=2, num_blocks=50) as served:
        async with served.open(prompt(20, n=5, simulate=forever)):
            loads = await served.until(lambda loads: loads.num_running_reqs == 2)
        assert (loads.num_running_reqs, loads.num_waiting_reqs, loads.num_blocks) == (2, 3, 50)
        assert loads.num_free_blocks < 50
        await served.until_idle()


async def test_a_fault_in_one_request_is_an_internal_error_for_it_alone() -> None:
    class Faulty(PagedModel):
        def execute(self, batch: Any) -> Any:
            results = super().execute(batch)
            bad = [entry.sequence.request.request_id == "bad" for entry in batch if entry.samples]
            return [ValueError("secret") if fault else result for fault, result in zip(bad, results, strict=True)]

    async with serving(lambda _settings: Faulty(64, 16)) as served:
        good, bad = await asyncio.gather(
            served.ask(prompt(max_tokens=9)), served.ask(prompt(max_tokens=9, name="bad")), return_exceptions=True
        )
    assert isinstance(bad, ServiceError)
    assert bad.message == "internal error"
    assert isinstance(good, engine_pb2.GenerateEvent)
    assert finish_of(good) == ["length"]


@pytest.mark.parametrize("promised", [True, False])
async def test_model_info_reports_batch_invariance(promised: bool) -> None:
    model = PagedModel(64, 16)
    model._info = replace(model.info, batch_invariant=promised)
    async with serving(lambda _settings: model) as served:
        assert (await served.stub.GetModelInfo(engine_pb2.ModelInfoRequest())).deterministic is promised


@pytest.mark.parametrize("cut", range(6))
async def test_a_resumed_request_continues_where_it_was(cut: int) -> None:
    request = prompt(40, simulate=script([65, 66], [], [67], [68, 69]), max_tokens=9, seed=3)
    resumed = engine_pb2.GenerateRequest()
    resumed.CopyFrom(request)
    async with serving() as served:
        whole = await served.ask(request)
        resumed.output_ids.extend(tokens_of(whole)[:cut])
        rest = await served.ask(resumed)
    assert tokens_of(rest) == tokens_of(whole)[cut:]
    assert finish_of(rest) == finish_of(whole) == ["stop"]
    assert (rest.prompt_tokens, rest.cached_tokens) == (40, 32)


@pytest.mark.parametrize("cut", [0, 4])
async def test_a_choice_resumed_alone_gives_the_same_tokens(cut: int) -> None:
    request = prompt(40, n=4, max_tokens=9, seed=3, temperature=2.0)
    alone = prompt(40, max_tokens=9, seed=3, temperature=2.0)
    alone.choice_index = 3
    async with serving() as served:
        whole = await served.ask(request)
        fourth = tokens_of(whole, 3)
        alone.output_ids.extend(fourth[:cut])
        rest = await served.ask(alone)
    assert len(fourth) == 9
    assert fourth != tokens_of(whole)
    assert tokens_of(rest) == fourth[cut:]


@pytest.mark.parametrize(("index", "params"), [(1, {"n": 2}), (128, {})])
async def test_an_invalid_choice_index_is_refused(index: int, params: dict[str, Any]) -> None:
    request = prompt(4, **params)
    request.choice_index = index
    async with serving() as served:
        error = await refused(served, request)
    assert isinstance(error, InvalidRequest)
    assert error.param == "choice_index"


@pytest.mark.parametrize(
    ("output", "params", "named"),
    [
        ([1], {"n": 2}, "n"),
        ([1, 2, 3], {"max_tokens": 3}, "max_tokens"),
        ([1, 259], {}, "output_ids"),
    ],
)
async def test_what_cannot_be_resumed_is_refused(output: list[int], params: dict[str, Any], named: str) -> None:
    request = prompt(4, **params)
    request.output_ids.extend(output)
    async with serving() as served:
        error = await refused(served, request)
    assert isinstance(error, InvalidRequest)
    assert error.param == named
