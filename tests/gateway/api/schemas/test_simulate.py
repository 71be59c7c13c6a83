from __future__ import annotations

from typing import Any

import pytest

from gateway.api.chat.read import read_chat
from gateway.generation import request as chat
from gateway.policy import limits
from svclib.errors import InvalidRequest


def read(simulate: Any) -> chat.Script | None:
    document = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "simulate": simulate}
    return read_chat(document, reject_unknown=False).generation.script


def test_a_script() -> None:
    given = {"steps": ["ABC ", {"hex": "f09F"}, "", {"hex": ""}], "repeat": 2, "delay_ms": 1.5, "finish": "length"}
    assert read(given) == chat.Script(("ABC ", b"\xf0\x9f", "", b""), 2, 1.5, "length")


def test_minimal_script() -> None:
    assert read({"steps": []}) == chat.Script(())
    assert read(None) is None


def test_at_the_limits() -> None:
    steps = [""] * limits.MAX_SCRIPT_STEPS
    assert read({"steps": steps, "repeat": limits.MAX_SCRIPT_REPEAT, "delay_ms": limits.MAX_SCRIPT_DELAY_MS})


FAULTS: list[tuple[str, Any]] = [
    ("simulate", 5),
    ("simulate", []),
    ("simulate.steps", {}),
    ("simulate.steps", {"steps": "ABC"}),
    ("simulate.steps", {"steps": [""] * (limits.MAX_SCRIPT_STEPS + 1)}),
    ("simulate.steps[1]", {"steps": ["a", 5]}),
    ("simulate.steps[0]", {"steps": [None]}),
    ("simulate.steps[0].hex", {"steps": [{}]}),
    ("simulate.steps[0].hex", {"steps": [{"hex": "f"}]}),
    ("simulate.steps[0].hex", {"steps": [{"hex": "zz"}]}),
    ("simulate.steps[0].hex", {"steps": [{"hex": "f0 9f"}]}),
    ("simulate.steps[0].hex", {"steps": [{"hex": 5}]}),
    ("simulate.steps[0].text", {"steps": [{"hex": "00", "text": "x"}]}),
    ("simulate.repeat", {"steps": [], "repeat": 0}),
    ("simulate.repeat", {"steps": [], "repeat": limits.MAX_SCRIPT_REPEAT + 1}),
    ("simulate.repeat", {"steps": [], "repeat": 1.5}),
    ("simulate.delay_ms", {"steps": [], "delay_ms": -1}),
    ("simulate.delay_ms", {"steps": [], "delay_ms": limits.MAX_SCRIPT_DELAY_MS + 1}),
    ("simulate.finish", {"steps": [], "finish": "tool_calls"}),
    ("simulate.speed", {"steps": [], "speed": 1}),
]


@pytest.mark.parametrize(("param", "simulate"), FAULTS, ids=lambda value: str(value)[:60])
def test_errors_name_the_field(param: str, simulate: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(simulate)
    assert caught.value.param == param
