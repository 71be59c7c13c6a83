"""Many concurrent streams, each equal to its script. `make bench` runs more of them and prints figures."""

from __future__ import annotations

from bench.streams import play
from tests.stack import Stack


async def test_200_streams_equal_their_scripts(simulated: Stack) -> None:
    outcome = await play(simulated.api, "simulated", requests=200, tokens=50, concurrency=64)
    assert outcome.faults == []
    assert outcome.tokens == 200 * 50
