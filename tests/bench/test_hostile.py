from __future__ import annotations

import re
import sys

import pytest

from bench.hostile import __main__ as hostile
from bench.hostile import bodies, prompts, readers, schemas, templates
from bench.hostile.clients import Responses
from bench.hostile.kind import Kind
from bench.hostile.table import HEADER, rows
from tests.stack import SERVICES, Stack

STATUSES = r"\d+ x \w+(, \d+ x \w+)*"
RESPONSES = r"-|\d+ x [\w ]+ \(\d+\.\d s\)(, \d+ x [\w ]+ \(\d+\.\d s\))*"
SIZES = r"\d+, \d+, \d+"


def table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """The cells of each row."""
    monkeypatch.setattr(sys, "argv", ["hostile", "--seconds", "1", "--clients", "2", *arguments])
    hostile.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == HEADER.splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def is_row(cells: list[str], memory: str) -> bool:
    """Whether each column has the right format."""
    expected = [r"\d+\.\d"] * 4 + [STATUSES, RESPONSES] + [memory] * len(SERVICES)
    return all(re.fullmatch(pattern, cell) for pattern, cell in zip(expected, cells[1:], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("module", [bodies, readers, prompts, templates], ids=lambda module: module.__name__)
def test_each_kind_has_a_row(
    module: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds: tuple[Kind, ...] = vars(module)["KINDS"]
    none, *found = table(monkeypatch, capsys, "--only", *(kind.name for kind in kinds))
    assert none[0].startswith("none")
    assert [row[0] for row in found] == [f"2 {kind.name}" for kind in kinds]
    assert all(is_row(row, SIZES) for row in (none, *found))
    assert [row[6] == "-" for row in (none, *found)] == [True] + [False] * len(found)


def test_a_running_stack_is_measured(
    simulated: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [kind.name for kind in (*schemas.KINDS, *templates.KINDS)]
    found = table(monkeypatch, capsys, "--url", simulated.url, "--only", *names)
    suffixes = ["", ": json_object", ": a new schema"]
    assert [row[0] for row in found] == [
        f"{name}{suffix}" for name in ("none (simulated)", "2 schemas") for suffix in suffixes
    ]
    assert is_row(found[0], "-")
    assert is_row(found[3], "-")
    assert all(row[6:] == [""] * 5 for row in (*found[1:3], *found[4:]))


def test_every_kind_is_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["hostile", "--list"])
    hostile.main()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(hostile.KINDS)


def test_a_row_has_latencies_and_responses() -> None:
    during = {"plain": Responses({"200": [0.1, 0.3], "503": [0.2]})}
    hostile_responses = Responses({"400": [3.9, 1.0]})
    line = next(rows("2 schemas", during, {"plain": Responses({"200": [0.05] * 2})}, hostile_responses, {}, {}, {}))
    assert line == "| 2 schemas | 200.0 | 298.0 | 300.0 | 50.0 | 2 x 200, 1 x 503 | 2 x 400 (3.9 s) | - | - | - | - |"


async def test_errors_are_counted_as_responses() -> None:
    async def refuse() -> str:
        raise ConnectionRefusedError

    responses = Responses()
    await responses.wait_for(refuse())
    assert list(responses.seconds) == ["ConnectionRefusedError"]
