"""The engine's client, with a scripted engine behind gRPC."""

from __future__ import annotations

from gateway.generation.prompt import Prompt, ReasoningState
from gateway.generation.request import Sampling
from gateway.generation.services import GenerateInput
from svclib.session import Opening
from tests.gateway.running import scripted_stack, until
from tests.gateway.scripted import ScriptedEngine

PROMPT = Prompt([1, 2], [2], ReasoningState.CLOSED)


async def test_a_resumed_choice_sends_its_output_and_its_index() -> None:
    engine = ScriptedEngine()
    async with scripted_stack(engine) as stack:
        (client,) = stack.gateway.deployment.engines.ready
        for work in (
            GenerateInput(PROMPT, Sampling(), output_ids=[7, 8], choice_index=3),
            GenerateInput(PROMPT, Sampling()),
        ):
            generation = client.generate(work, Opening("r"))
            generation.start()
            await until(lambda: bool(engine.calls))
            generation.leave()
            call = engine.calls.pop()
            assert list(call.output_ids) == list(work.output_ids)
            assert call.choice_index == work.choice_index
            assert call.HasField("choice_index") == (work.choice_index != 0)
