"""Constraints that explode are refused in time, and others do not wait for them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine_svc.constraint import Constraint
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.grammar.examiner import Examiner, Stopped, TimedOut, TooMuch, Trial, TrialLimits
from engine_svc.grammar.limits import MAX_TRIALS, CompileLimits
from engine_svc.grammar.panics import Panic
from engine_svc.grammar.token_bytes import TokenBytes, simulated_tokens
from engine_svc.grammar.vocabulary import read_tokens, vocabulary_of, write_tokens
from engine_svc.request import Request, SamplingParams
from svclib.errors import InvalidRequest, Overloaded, Unavailable
from tests.engine_svc.grammar.given import choice, schema

LIMITS = TrialLimits(seconds=60.0, cpu_seconds=60.0)
MIB = 2**20

ENDLESS: dict[str, Any] = {
    "patterns that must all match": {
        "type": "string",
        "allOf": [{"pattern": f"^(a|b)*a(a|b){{{number}}}$"} for number in range(1, 31)],
    },
    "patterns of names": {"patternProperties": {f"^p{number}_": {"type": "string"} for number in range(500)}},
    "multiples": {"type": "integer", "allOf": [{"multipleOf": number} for number in (7, 11, 13, 17, 19, 23, 29)]},
}


@pytest.fixture
def examiner() -> Iterator[Examiner]:
    examiner = Examiner(simulated_tokens(), memory_bytes=64 * MIB)
    yield examiner
    examiner.close()


@pytest.fixture
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(vocabulary_of(simulated_tokens(), 300), limits=CompileLimits(seconds=0.5))
    compiler.start()
    yield compiler
    compiler.close()


@pytest.fixture
def patient() -> Iterator[GrammarCompiler]:
    """With limits that no test reaches."""
    compiler = GrammarCompiler(vocabulary_of(simulated_tokens(), 300), limits=CompileLimits(seconds=600))
    yield compiler
    compiler.close()


def attach(compiler: GrammarCompiler, constraint: Constraint) -> Any:
    return compiler.attach(Request("r", (1,), SamplingParams(constraint=constraint)))


def endless(number: int) -> Constraint:
    """A schema that takes minutes and little memory; another one for each number."""
    return schema(ENDLESS["patterns of names"] | {"description": str(number)})


def forks() -> list[psutil.Process]:
    """Children that try constraints, for this process."""
    servers = [child for child in psutil.Process().children() if "engine_svc.grammar.child" in child.cmdline()]
    return [fork for server in servers for fork in server.children()]


def busy_forks() -> list[psutil.Process]:
    """Those that have raised their niceness, because they take long."""
    usual = psutil.Process().nice()
    found = []
    for fork in forks():
        with suppress(psutil.NoSuchProcess):
            if fork.nice() > usual:
                found.append(fork)
    return found


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def raising(error: type[Exception]) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


async def ended(tasks: Iterable[asyncio.Future[Any]]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("name", ENDLESS)
def test_what_explodes_is_refused_and_leaves_nothing_running(compiler: GrammarCompiler, name: str) -> None:
    before = psutil.Process().memory_info().rss
    with pytest.raises(InvalidRequest, match=r"too complex: it takes more than") as caught:
        compiler.compile(schema(ENDLESS[name]))
    assert caught.value.param == "json_schema"
    assert psutil.Process().memory_info().rss - before < 64 * MIB
    assert compiler.compile(choice("a")) is not None


async def test_the_limit_of_cpu_time_is_told(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Examiner, "_ask", raising(TooMuch))
    message = r"too complex: it takes more than 0\.5 seconds of CPU time or 256 MiB of memory to compile"
    for attempt in (attach(compiler, choice("a")), attach(compiler, choice("b"))):
        with pytest.raises(InvalidRequest, match=message):
            await attempt


async def test_what_was_refused_twice_is_refused_again_without_a_trial(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Examiner, "_ask", raising(TooMuch))
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="too complex"):
            await attach(compiler, choice("a"))
    monkeypatch.setattr(Examiner, "_ask", raising(AssertionError))
    with pytest.raises(InvalidRequest, match="too complex"):
        await attach(compiler, choice("a"))
    with pytest.raises(InvalidRequest, match="too complex"):
        compiler.compile(choice("a"))


async def test_a_constraint_whose_child_was_killed_once_is_tried_again(
    patient: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Examiner, "_ask", raising(TooMuch))
        with pytest.raises(InvalidRequest, match="too complex"):
            await attach(patient, choice("a"))
    assert (await attach(patient, choice("a"))).grammar is not None


@pytest.mark.parametrize("error", [TimedOut, Stopped])
async def test_what_only_ran_out_of_time_is_tried_again(
    patient: GrammarCompiler, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Examiner, "_ask", raising(error))
        with pytest.raises((InvalidRequest, Overloaded)):
            await attach(patient, choice("a"))
    assert (await attach(patient, choice("a"))).grammar is not None


@pytest.mark.parametrize(
    ("seconds", "error", "message"),
    [
        (0.5, InvalidRequest, r"too complex: it takes more than 0\.015 seconds to compile"),
        (0.4, Overloaded, r"waited for others and was not compiled within 0\.015 seconds"),
    ],
)
async def test_at_the_wall_limit_the_error_tells_whether_it_ran_or_waited(
    monkeypatch: pytest.MonkeyPatch, seconds: float, error: type[Exception], message: str
) -> None:
    hasty = GrammarCompiler(vocabulary_of(simulated_tokens(), 300), limits=CompileLimits(seconds=0.01))
    assert hasty._stages is not None
    monkeypatch.setattr(hasty._stages, "examine", lambda *_: Future())
    monkeypatch.setattr(Trial, "seconds", lambda _: seconds)
    with pytest.raises(error, match=message):
        await attach(hasty, choice("a"))
    hasty.close()


async def test_others_are_answered_while_some_explode(patient: GrammarCompiler) -> None:
    exploding = [asyncio.ensure_future(attach(patient, endless(number))) for number in range(MAX_TRIALS - 1)]
    await until(lambda: len(forks()) >= MAX_TRIALS - 1)
    for number in range(5):
        assert (await attach(patient, schema({"const": number}))).grammar is not None
    assert not any(one.done() for one in exploding)
    patient.close()
    assert all(isinstance(one, Unavailable | asyncio.CancelledError) for one in await ended(exploding))


async def test_the_oldest_is_stopped_when_there_are_too_many_and_another_one_comes(patient: GrammarCompiler) -> None:
    exploding = [asyncio.ensure_future(attach(patient, endless(0)))]
    await until(lambda: len(busy_forks()) == 1)
    exploding += [asyncio.ensure_future(attach(patient, endless(number))) for number in range(1, MAX_TRIALS)]
    await asyncio.sleep(0)
    assert (await attach(patient, choice("a"))).grammar is not None
    assert [one.done() for one in exploding] == [True] + [False] * (MAX_TRIALS - 1)
    with pytest.raises(Overloaded, match=r"stopped after 0\.5 seconds because others were waiting"):
        exploding[0].result()
    patient.close()
    await ended(exploding)


async def test_the_same_constraint_is_tried_once_for_all_who_ask(patient: GrammarCompiler) -> None:
    asking = [asyncio.ensure_future(attach(patient, endless(0))) for _ in range(3 * MAX_TRIALS)]
    await until(lambda: bool(busy_forks()))
    assert (await attach(patient, choice("a"))).grammar is not None
    assert len(busy_forks()) == 1
    patient.close()
    await ended(asking)


async def test_a_caller_that_leaves_ends_its_trial(patient: GrammarCompiler) -> None:
    leaving = [asyncio.ensure_future(attach(patient, endless(number))) for number in range(MAX_TRIALS)]
    await until(lambda: len(busy_forks()) == MAX_TRIALS)
    for one in leaving:
        one.cancel()
    await until(lambda: not busy_forks())
    assert all(isinstance(one, asyncio.CancelledError) for one in await ended(leaving))
    assert (await attach(patient, choice("a"))).grammar is not None


def test_what_was_compiled_is_not_compiled_again() -> None:
    seconds: list[float] = []
    compiler = GrammarCompiler(vocabulary_of(simulated_tokens(), 300), seconds.append)
    first, second = (compiler.compile(schema({"type": "object"})) for _ in range(2))
    assert first is second
    assert len(seconds) == 1
    compiler.close()


def test_a_child_says_how_much_memory_a_grammar_takes(examiner: Examiner) -> None:
    small = examiner.examine(schema({"type": "null"}), LIMITS)
    large = examiner.examine(schema({"properties": {f"p{n}": {"type": "string"} for n in range(1000)}}), LIMITS)
    assert 0 < small.num_bytes < MIB < large.num_bytes < 64 * MIB


def test_cpu_time_is_limited(examiner: Examiner) -> None:
    with pytest.raises(TooMuch):
        examiner.examine(endless(0), TrialLimits(seconds=1000.0, cpu_seconds=0.2))


def test_time_on_the_clock_is_limited(examiner: Examiner) -> None:
    examiner.examine(choice("a"), LIMITS)
    with pytest.raises(TimedOut):
        examiner.examine(endless(0), TrialLimits(seconds=0.1, cpu_seconds=1000.0))


def test_a_trial_can_be_stopped_before_and_while_it_runs(examiner: Examiner) -> None:
    examiner.examine(choice("a"), LIMITS)
    for start_first in (False, True):
        trial = Trial()
        with ThreadPoolExecutor(1) as threads:
            if not start_first:
                trial.stop()
            found = threads.submit(examiner.examine, endless(0), TrialLimits(1000.0, 1000.0), trial)
            while start_first and not trial.seconds():
                time.sleep(0.01)
            trial.stop()
            with pytest.raises(Stopped):
                found.result(60)


def test_memory_is_limited() -> None:
    tight = Examiner(simulated_tokens(), memory_bytes=16 * MIB)
    with pytest.raises(TooMuch):
        tight.examine(schema({"type": "integer", "multipleOf": 999_983}), LIMITS)
    assert tight.examine(choice("a"), LIMITS).grammar
    tight.close()


def test_each_constraint_has_its_own_cpu_time(examiner: Examiner) -> None:
    for number in range(20):
        limits = TrialLimits(seconds=60.0, cpu_seconds=0.5)
        examiner.examine(schema({"enum": [f"{number} {word}" for word in range(1500)]}), limits)


def test_faults_come_back_as_they_are(examiner: Examiner) -> None:
    with pytest.raises(InvalidRequest, match="unclosed") as caught:
        examiner.examine(Constraint("grammar", 'start: %json {"pattern": "[", "type": "string"}'), LIMITS)
    assert caught.value.param == "grammar.json[0]"


def test_a_closed_examiner_is_unavailable(examiner: Examiner) -> None:
    examiner.examine(choice("a"), LIMITS)
    examiner.close()
    with pytest.raises(Unavailable):
        examiner.examine(choice("a"), LIMITS)


def test_a_child_that_cannot_start_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_svc.grammar.examiner.write_tokens", lambda _tokens, path: path.write_text("{}"))
    broken = Examiner(simulated_tokens(), memory_bytes=64 * MIB)
    with pytest.raises(Unavailable):
        broken.examine(choice("a"), LIMITS)
    broken.close()


def test_a_panic_in_a_child_is_a_panic(examiner: Examiner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examiner, "_ask", lambda *_: json.dumps({"panic": "index out of bounds"}))
    with pytest.raises(Panic, match="index"):
        examiner.examine(choice("a"), LIMITS)


def test_children_and_their_files_are_removed_with_the_examiner() -> None:
    examiner = Examiner(simulated_tokens(), memory_bytes=64 * MIB)
    examiner.examine(choice("a"), LIMITS)
    mine = [child for child in psutil.Process().children() if "engine_svc.grammar.child" in child.cmdline()]
    tokens = [Path(child.cmdline()[-2]) for child in mine]
    assert all(path.is_file() for path in tokens)
    ours = tokens[-1]
    del examiner
    assert not ours.exists()
    assert not any(psutil.pid_exists(child.pid) and str(ours) in child.cmdline() for child in mine)


def test_tokens_are_kept_byte_for_byte(tmp_path: Path) -> None:
    tokens = TokenBytes((bytes(range(256)), b"", "é日".encode(), os.urandom(50)), frozenset({1, 3}))
    write_tokens(tokens, tmp_path / "tokens")
    assert read_tokens(tmp_path / "tokens") == tokens
