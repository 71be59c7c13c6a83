from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.replicas.balancer import Balancer
from gateway.replicas.clients.detokenizer import DetokenizerClient
from gateway.replicas.clients.engine import SessionEngine
from gateway.replicas.clients.tokenizer import TokenizerClient
from gateway.replicas.deployment import Deployment
from gateway.replicas.info import DetokenizerInfo, EngineInfo, TokenizerInfo
from gateway.replicas.registry import Registry
from svclib.errors import ModelNotFound, Unavailable
from svclib.session import SessionLimits
from tests.gateway.generation.test_model import AUTO, DETOKENIZER, ENGINE, TOKENIZER

T = replace(TOKENIZER, vocab_size=40)
D = replace(DETOKENIZER, vocab_size=40)
OTHER_T, OTHER_D, OTHER_E = (
    replace(T, vocab_size=45),
    replace(D, vocab_size=45),
    replace(ENGINE, model_path="/models/y"),
)


def _balancer(name: str, infos: list[Any], make_client: Any) -> Any:
    """One replica for each description; None: not ready."""
    balancer = Balancer(name, [f"{name}:{number}" for number in range(len(infos))], make_client, lambda _: None)  # type: ignore[arg-type, return-value, var-annotated]
    for replica, info in zip(balancer._replicas, infos, strict=True):
        replica.info = info
    return balancer


@asynccontextmanager
async def deployment(
    tokenizers: list[TokenizerInfo | None], engines: list[EngineInfo | None], detokenizers: list[DetokenizerInfo | None]
) -> AsyncIterator[Deployment]:
    limits = SessionLimits()
    made = Deployment(
        _balancer("tokenizer", tokenizers, lambda channel: TokenizerClient(channel, 1.0)),
        _balancer("engine", engines, lambda channel: SessionEngine(channel, limits)),
        _balancer("detokenizer", detokenizers, lambda channel: DetokenizerClient(channel, limits)),
        AUTO,
    )
    try:
        yield made
    finally:
        for balancer in (made.tokenizers, made.engines, made.detokenizers):
            await balancer.stop()


def chosen(made: Deployment) -> list[str]:
    """The addresses of the replicas that a request gets."""
    served = made.find()
    with (
        served.tokenizers.choose() as tokenizer,
        served.engines.choose() as engine,
        served.detokenizers.choose() as detokenizer,
    ):
        return [tokenizer.address, engine.address, detokenizer.address]


async def test_names() -> None:
    async with deployment([T], [ENGINE], [D]) as made:
        registry = Registry(dict.fromkeys(("a", "b"), made))
        assert registry.find("b").model == registry.find("a").model
        for unknown in ("", "A", "a ", "x" * 10_000):
            with pytest.raises(ModelNotFound) as caught:
                registry.find(unknown)
            assert caught.value.param == "model"
            assert len(caught.value.message) < 200


async def test_agreeing_replicas_are_one_group() -> None:
    async with deployment([T, T], [ENGINE, ENGINE], [D, None]) as made:
        (group,) = made.groups
        assert group.engines.addresses == ["engine:0", "engine:1"]
        assert made.warnings() == ()
        assert {address for _ in range(4) for address in chosen(made)} == {
            "tokenizer:0", "tokenizer:1", "engine:0", "engine:1", "detokenizer:0",
        }  # fmt: skip


async def test_services_that_are_not_ready_are_named() -> None:
    async with deployment([T], [None], []) as made:
        with pytest.raises(Unavailable, match="not ready: engine, detokenizer"):
            made.find()


async def test_disagreeing_replicas_form_groups() -> None:
    """An engine is grouped with the tokenizer of its vocabulary, and with that one's detokenizer."""
    larger = replace(OTHER_E, vocab_size=64)
    smaller = replace(ENGINE, vocab_size=44)
    async with deployment([T, OTHER_T], [smaller, larger], [OTHER_D, D]) as made:
        paths = {tuple(chosen(made)) for _ in range(2)}
        with made.groups[0].engines.choose(choices=3):
            paths |= {tuple(chosen(made)) for _ in range(2)}
        with made.groups[1].engines.choose(choices=3):
            paths |= {tuple(chosen(made)) for _ in range(2)}
        assert paths == {("tokenizer:0", "engine:0", "detokenizer:1"), ("tokenizer:1", "engine:1", "detokenizer:0")}
        (warning,) = made.warnings()
        for said in ("engine:0 /models/x float32", "engine:1 /models/y float32"):
            assert said in warning


async def test_least_loaded_group_is_chosen() -> None:
    async with deployment([T], [ENGINE, ENGINE, OTHER_E], [D]) as made:
        assert [group.engines.info for group in made.groups] == [ENGINE, OTHER_E]
        with made.groups[0].engines.choose(choices=2):
            assert chosen(made)[1] == "engine:2"
        with made.groups[1].engines.choose():
            assert chosen(made)[1] in {"engine:0", "engine:1"}


async def test_replica_without_a_group_is_not_used() -> None:
    strange = replace(T, template_version="v2")
    async with deployment([T, T, strange], [ENGINE, replace(ENGINE, vocab_size=39)], [D]) as made:
        for _ in range(5):
            assert "tokenizer:2" not in chosen(made)
            assert "engine:1" not in chosen(made)
        tokenizer, engine = made.warnings()
        assert "tokenizer:2" in tokenizer
        assert "engine:1" in engine


async def test_no_replicas_agree() -> None:
    async with deployment([T], [ENGINE], [OTHER_D]) as made:
        with pytest.raises(Unavailable, match="the tokenizer has 40 token ids and the detokenizer has 45"):
            made.find()


async def test_refresh_after_a_change() -> None:
    async with deployment([T], [ENGINE], [D]) as made:
        assert made.find().model.max_context_length == made.max_context_length == 100
        made.engines._replicas[0].info = replace(ENGINE, max_context_length=7)
        made.refresh()
        assert made.find().model.max_context_length == made.max_context_length == 7
