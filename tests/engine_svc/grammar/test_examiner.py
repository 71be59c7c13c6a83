"""Constraints that explode are refused in time, and hold up nobody but their like."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine_svc.constraint import Constraint
from engine_svc.grammar.compiler import MAX_SLOW, GrammarCompiler
from engine_svc.grammar.examiner import Examiner, ProbePolicy, TooMuch
from engine_svc.grammar.limits import CompileLimits
from engine_svc.grammar.panics import Panic
from engine_svc.grammar.token_bytes import TokenBytes, simulated_tokens
from engine_svc.grammar.vocabulary import read_tokens, vocabulary_of, write_tokens
from engine_svc.request import Request, SamplingParams
from svclib.errors import InvalidRequest, Overloaded, Unavailable
from tests.engine_svc.grammar.given import choice, schema

PROBE_POLICY = ProbePolicy(60.0, 60.0)
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
    compiler = GrammarCompiler(vocabulary_of(simulated_tokens(), 300), limits=CompileLimits(seconds=1.5))
    compiler.start()
    yield compiler
    compiler.close()


@pytest.fixture
def patient() -> Iterator[GrammarCompiler]:
    """One that lets what explodes go on as long as the test takes."""
    compiler = GrammarCompiler(vocabulary_of(simulated_tokens(), 300), limits=CompileLimits(seconds=600))
    yield compiler
    compiler.close()


def attach(compiler: GrammarCompiler, constraint: Constraint) -> Any:
    return compiler.attach(Request("r", (1,), SamplingParams(constraint=constraint)))


def endless(number: int) -> Constraint:
    """Each time another one, which takes minutes and little memory."""
    return schema(ENDLESS["patterns of names"] | {"description": str(number)})


async def ended(tasks: Iterable[asyncio.Future[Any]]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("name", ENDLESS)
def test_what_explodes_is_refused_and_leaves_nothing_running(compiler: GrammarCompiler, name: str) -> None:
    before = psutil.Process().memory_info().rss
    with pytest.raises(InvalidRequest, match=r"too complex: it takes more than 1\.5 seconds or 256 MiB") as caught:
        compiler.compile(schema(ENDLESS[name]))
    assert caught.value.param == "json_schema"
    assert psutil.Process().memory_info().rss - before < 64 * MIB
    assert compiler.compile(choice("a")) is not None


async def test_others_are_answered_while_some_explode(patient: GrammarCompiler) -> None:
    exploding = [asyncio.ensure_future(attach(patient, endless(number))) for number in range(MAX_SLOW)]
    await asyncio.sleep(0.5)
    for number in range(5):
        assert (await attach(patient, schema({"const": number}))).grammar is not None
    assert not any(one.done() for one in exploding)
    patient.close()
    assert all(isinstance(one, Unavailable | asyncio.CancelledError) for one in await ended(exploding))


async def test_more_that_take_long_than_can_wait_are_sent_away(patient: GrammarCompiler) -> None:
    exploding = [asyncio.ensure_future(attach(patient, endless(number))) for number in range(MAX_SLOW + 2)]
    sent_away, waiting = await asyncio.wait(exploding, return_when=asyncio.FIRST_EXCEPTION)
    while len(sent_away) < 2:
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
        sent_away |= more
    assert [type(one.exception()) for one in sent_away] == [Overloaded] * 2
    patient.close()
    await ended(waiting)


def test_what_was_compiled_is_not_compiled_again() -> None:
    seconds: list[float] = []
    compiler = GrammarCompiler(vocabulary_of(simulated_tokens(), 300), seconds.append)
    first, second = (compiler.compile(schema({"type": "object"})) for _ in range(2))
    assert first is second
    assert len(seconds) == 1
    compiler.close()


def test_a_child_says_how_much_memory_a_grammar_takes(examiner: Examiner) -> None:
    small = examiner.examine(schema({"type": "null"}), PROBE_POLICY)
    large = examiner.examine(schema({"properties": {f"p{n}": {"type": "string"} for n in range(1000)}}), PROBE_POLICY)
    assert 0 < small.num_bytes < MIB < large.num_bytes < 64 * MIB


def test_processor_time_is_limited(examiner: Examiner) -> None:
    examiner.examine(choice("a"), PROBE_POLICY)
    started = time.monotonic()
    with pytest.raises(TooMuch):
        examiner.examine(endless(0), ProbePolicy(60.0, 0.2))
    assert time.monotonic() - started < 30


def test_memory_is_limited() -> None:
    tight = Examiner(simulated_tokens(), memory_bytes=16 * MIB)
    with pytest.raises(TooMuch):
        tight.examine(schema({"type": "integer", "multipleOf": 999_983}), PROBE_POLICY)
    assert tight.examine(choice("a"), PROBE_POLICY).grammar
    tight.close()


def test_an_answer_that_took_most_of_its_time_leaves_all_of_it_to_the_next(examiner: Examiner) -> None:
    for number in range(20):
        patience = ProbePolicy(60.0, 0.5)
        examiner.examine(schema({"enum": [f"{number} {word}" for word in range(1500)]}), patience)


def test_faults_come_back_as_they_are(examiner: Examiner) -> None:
    with pytest.raises(InvalidRequest, match="unclosed") as caught:
        examiner.examine(Constraint("grammar", 'start: %json {"pattern": "[", "type": "string"}'), PROBE_POLICY)
    assert caught.value.param == "grammar.json[0]"


def test_a_closed_one_answers_no_more(examiner: Examiner) -> None:
    examiner.examine(choice("a"), PROBE_POLICY)
    examiner.close()
    with pytest.raises(Unavailable):
        examiner.examine(choice("a"), PROBE_POLICY)


def test_a_child_that_cannot_start_is_no_fault_of_the_constraint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_svc.grammar.examiner.write_tokens", lambda _tokens, path: path.write_text("{}"))
    broken = Examiner(simulated_tokens(), memory_bytes=64 * MIB)
    with pytest.raises(Unavailable):
        broken.examine(choice("a"), PROBE_POLICY)
    broken.close()


def test_a_panic_in_a_child_is_a_panic(examiner: Examiner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examiner, "_ask", lambda *_: json.dumps({"panic": "index out of bounds"}))
    with pytest.raises(Panic, match="index"):
        examiner.examine(choice("a"), PROBE_POLICY)


def test_children_and_their_files_go_with_the_examiner() -> None:
    examiner = Examiner(simulated_tokens(), memory_bytes=64 * MIB)
    examiner.examine(choice("a"), PROBE_POLICY)
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
