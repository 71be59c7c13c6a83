"""Constraints from gRPC request to finished output: refusals, and independence of scheduling."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_svc.constraint import Constraint
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.grammar.token_bytes import TokenBytes
from engine_svc.grammar.vocabulary import vocabulary_of
from engine_svc.request import Request, SamplingParams
from protos.v1 import common_pb2, engine_pb2
from svclib.errors import InvalidRequest, ServiceError
from tests.engine_svc import tiny
from tests.engine_svc.given import Answer
from tests.engine_svc.running import load, num_preemptions, run
from tests.engine_svc.serving import EOS, prompt, script, serving, tokens_of

OPEN, CLOSED = common_pb2.REASONING_STATE_OPEN, common_pb2.REASONING_STATE_CLOSED
UNDECIDED = common_pb2.REASONING_STATE_UNDECIDED


async def refused(request: engine_pb2.GenerateRequest) -> InvalidRequest:
    async with serving() as served:
        with pytest.raises(ServiceError) as caught:
            await served.ask(request)
        assert tokens_of(await served.ask(prompt(simulate=script([65])))) == [65, EOS]
    assert isinstance(caught.value, InvalidRequest)
    return caught.value


@pytest.mark.parametrize(
    ("constraint", "param"),
    [
        ({"json_schema": '{"type": "string", "pattern": "["}'}, "json_schema"),
        ({"json_schema": '{"$ref": "#"}'}, "json_schema"),
        ({"json_schema": ""}, "json_schema"),
        ({"regex": "("}, "regex"),
        ({"regex": ""}, "regex"),
        ({"choice": engine_pb2.ChoiceConstraint()}, "choice"),
        ({"grammar": "start: nothing"}, "grammar"),
    ],
)
async def test_a_wrong_constraint_is_refused_by_name_and_the_next_request_is_served(
    constraint: dict[str, Any], param: str
) -> None:
    assert (await refused(prompt(**constraint))).param == param


@pytest.mark.parametrize(
    ("state", "start", "end", "param"),
    [
        (OPEN, [], [], "reasoning_end_token_ids"),
        (OPEN, [], [999], "reasoning_end_token_ids"),
        (OPEN, [], [1] * 65, "reasoning_end_token_ids"),
        (UNDECIDED, [], [1], "reasoning_start_token_ids"),
        (UNDECIDED, [999], [1], "reasoning_start_token_ids"),
    ],
)
async def test_wrong_tags_are_refused_by_name(state: int, start: list[int], end: list[int], param: str) -> None:
    request = prompt(regex="a")
    request.reasoning_state = common_pb2.ReasoningState.ValueType(state)
    request.reasoning_start_token_ids.extend(start)
    request.reasoning_end_token_ids.extend(end)
    assert (await refused(request)).param == param


@pytest.mark.parametrize(
    "params", [{"json_object": True}, {"json_object": False}, {"regex": "[0-9]+"}, {"json_schema": "{}"}, {}]
)
async def test_a_simulated_model_plays_its_script_under_any_constraint(params: dict[str, Any]) -> None:
    async with serving() as served:
        assert tokens_of(await served.ask(prompt(simulate=script([65]), **params))) == [65, EOS]
        request = prompt(simulate=script([65]), **params)
        request.reasoning_state = CLOSED
        assert tokens_of(await served.ask(request)) == [65, EOS]


async def test_model_info_reports_constraint_support() -> None:
    async with serving() as served:
        info = await served.stub.GetModelInfo(engine_pb2.ModelInfoRequest())
    assert info.supports_constraints


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "list": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "list"],
    "additionalProperties": False,
}
VOCAB, END = 258, 257


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny random model, whose tokens are bytes."""
    config = tiny.llama(vocab_size=VOCAB, eos_token_id=END)
    return tiny.save(tiny.random_model(config), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def requests() -> Callable[[], list[Request]]:
    compiler = GrammarCompiler(
        vocabulary_of(TokenBytes.of({n: bytes([n]) for n in range(256)}, frozenset({END})), VOCAB)
    )
    constraint = Constraint("json_schema", json.dumps(SCHEMA))
    grammar = compiler.compile(constraint)

    def make() -> list[Request]:
        return [
            Request(
                str(seed),
                tuple(range(1 + seed, 20 + seed)),
                SamplingParams(
                    temperature=1.5 * (seed % 2), seed=seed, max_tokens=90, constraint=constraint, n=1 + seed % 3
                ),
                frozenset({END}),
                grammar=grammar,
            )
            for seed in range(6)
        ]

    return make


def outputs(answers: list[Answer]) -> list[dict[int, list[int]]]:
    assert all(answer.error is None for answer in answers)
    return [answer.token_ids for answer in answers]


def test_complete_outputs_are_valid(model: str, requests: Callable[[], list[Request]]) -> None:
    answers = run(load(model, num_blocks=512), requests())
    ended = [
        bytes(answer.token_ids[index]).decode()
        for answer in answers
        for index, reason in answer.finish_reasons.items()
        if reason == "stop"
    ]
    assert ended
    assert all(json.loads(text).keys() == {"name", "list"} for text in ended)


@pytest.mark.parametrize(
    ("blocks", "options"),
    [(512, {"chunk": 3}), (512, {"max_num_seqs": 1}), (512, {"caching": True}), (64, {"chunk": 5})],
)
def test_scheduling_changes_nothing(
    model: str, requests: Callable[[], list[Request]], blocks: int, options: dict[str, Any]
) -> None:
    plain = run(load(model, num_blocks=512), requests())
    answers = run(load(model, num_blocks=blocks), requests(), **options)
    assert outputs(answers) == outputs(plain)
    assert (num_preemptions(answers) > 0) == (blocks == 64)


def test_the_folder_of_a_model_without_tokenizer_has_no_constraints(model: str) -> None:
    assert not (Path(model) / "tokenizer.json").exists()
    with pytest.raises(InvalidRequest, match="tokenizer"):
        GrammarCompiler(None).compile(Constraint("json_object"))
