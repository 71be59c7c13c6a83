"""The client's ``traceparent`` is passed to the engine and the detokenizer."""

from __future__ import annotations

import pytest

from tests.gateway.running import HI, MODEL, scripted_stack
from tests.gateway.scripted import FormatCall, GenerateCall, ScriptedDetokenizer, ScriptedEngine, say_hello, spell

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(("given", "told"), [(TRACE, TRACE), ("00-abc", ""), (TRACE + "x" * 9000, ""), (None, "")])
async def test_traceparent_is_passed_to_engine_and_detokenizer(given: str | None, told: str) -> None:
    seen: list[str] = []

    async def generate(call: GenerateCall) -> None:
        seen.append(call.opening.traceparent)
        await say_hello(call)

    async def format(call: FormatCall) -> None:
        seen.append(call.opening.traceparent)
        await spell(call)

    async with scripted_stack(ScriptedEngine(generate), ScriptedDetokenizer(format)) as stack, stack.http() as client:
        headers = {} if given is None else {"traceparent": given}
        answer = await client.post("/v1/chat/completions", json={"model": MODEL, "messages": HI}, headers=headers)
        assert answer.status_code == 200
    assert seen == [told, told]
