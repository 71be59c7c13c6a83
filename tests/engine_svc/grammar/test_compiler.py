from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine_svc.constraint import Constraint, Thinking
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.grammar.limits import MAX_WAITING
from engine_svc.grammar.panics import Panic
from engine_svc.grammar.token_bytes import simulated_tokens
from engine_svc.grammar.vocabulary import load_grammar_vocabulary, vocabulary_of
from engine_svc.request import Request, SamplingParams
from svclib.errors import InvalidRequest, Overloaded, Unsupported
from tests.engine_svc.grammar.given import EOS, choice, compiler, texts_of
from tests.engine_svc.grammar.test_token_bytes import BYTE_LEVEL, folder


def request(constraint: Constraint | None, thinking: Thinking | None = None) -> Request:
    return Request("r", (1,), SamplingParams(constraint=constraint), thinking=thinking)


class PanicException(BaseException):
    """As pyo3 raises it."""


def panicking(*_args: Any, **_kwargs: Any) -> None:
    raise PanicException("index out of bounds")


async def test_a_request_without_a_constraint_stays_as_it_is() -> None:
    plain = request(None)
    assert await compiler().attach(plain) is plain


async def test_a_request_gets_its_grammar_with_its_thinking() -> None:
    attached = await compiler().attach(request(choice("a"), Thinking(True, (), (ord("."),))))
    assert attached.grammar is not None
    matcher = attached.grammar.matcher((EOS,), (EOS,))
    assert "z" in texts_of(matcher.allowed([], may_end=True))
    assert texts_of(matcher.allowed([ord(".")], may_end=True)) == {"a"}


async def test_many_at_once() -> None:
    attached = await asyncio.gather(*(compiler().attach(request(choice(f"text {n}"))) for n in range(50)))
    assert all(one.grammar is not None for one in attached)


async def test_too_many_waiting_constraints_are_refused() -> None:
    waiting = [compiler().attach(request(choice(f"new text {n}"))) for n in range(MAX_WAITING + 3)]
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in found] == [Request] * MAX_WAITING + [Overloaded] * 3
    assert (await compiler().attach(request(choice("a")))).grammar is not None


async def test_a_cancelled_request_no_longer_counts_as_waiting() -> None:
    own = GrammarCompiler(vocabulary_of(simulated_tokens(), 300))
    leaving = [asyncio.ensure_future(own.attach(request(choice(f"text {n}")))) for n in range(MAX_WAITING)]
    await asyncio.sleep(0)
    for one in leaving:
        one.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    assert (await own.attach(request(choice("a")))).grammar is not None


async def test_a_wrong_one_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        await compiler().attach(request(choice("")))


async def test_reasoning_without_text_at_its_end_is_refused() -> None:
    nameless = 329  # An id below the model's size that has no token.
    with pytest.raises(InvalidRequest) as caught:
        await compiler().attach(request(choice("a"), Thinking(True, (), (nameless,))))
    assert caught.value.param == "reasoning_end_token_ids"
    assert (await compiler().attach(request(choice("a"), Thinking(True, (), (nameless, ord(".")))))).grammar is not None


async def test_a_panic_fails_only_its_own_request(monkeypatch: pytest.MonkeyPatch) -> None:
    own = GrammarCompiler(vocabulary_of(simulated_tokens(), 300))
    with monkeypatch.context() as patch:
        patch.setattr("engine_svc.grammar.building.LLMatcher", panicking)
        for _ in range(3):
            with pytest.raises(Panic, match="index out of bounds"):
                await own.attach(request(choice("a")))
    assert (await own.attach(request(choice("a")))).grammar is not None


def test_without_a_vocabulary_nothing_is_supported() -> None:
    blind = GrammarCompiler(None)
    assert not blind.is_supported
    with pytest.raises(Unsupported) as caught:
        blind.compile(Constraint("regex", "a"))
    assert caught.value.param == "regex"


def test_compiling_is_timed() -> None:
    seconds: list[float] = []
    timed = GrammarCompiler(vocabulary_of(simulated_tokens(), 300), seconds.append)
    timed.compile(choice("a"))
    assert len(seconds) == 1
    assert seconds[0] > 0


@pytest.mark.parametrize("source", ["", "simulated"])
def test_the_simulated_models_vocabulary(source: str) -> None:
    vocabulary = load_grammar_vocabulary(source, 259)
    assert vocabulary is not None
    assert vocabulary.tokens == simulated_tokens()


def test_a_vocabulary_is_truncated_or_padded_to_the_models_size(tmp_path: Path) -> None:
    added = [{"id": 5, "content": "<end>", "special": True}]
    source = str(folder(tmp_path, BYTE_LEVEL | {"added_tokens": added}))
    (tmp_path / "config.json").write_text("{}")
    larger, smaller = load_grammar_vocabulary(source, 10), load_grammar_vocabulary(source, 2)
    assert larger is not None
    assert smaller is not None
    assert larger.tokens.spelled == (b"a", b" b", b"\n", "é".encode(), "日".encode(), b"<end>", b"", b"", b"", b"")
    assert smaller.tokens.spelled == (b"a", b" b")
    for vocabulary in (larger, smaller):
        mask = GrammarCompiler(vocabulary).compile(Constraint("regex", "a.")).matcher((), ()).allowed([], may_end=True)
        assert mask is not None
        assert mask.nonzero()[0].tolist() == [0]
        assert len(mask) == vocabulary.size


def test_a_model_without_a_tokenizer_has_no_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert load_grammar_vocabulary(str(tmp_path), 10) is None
