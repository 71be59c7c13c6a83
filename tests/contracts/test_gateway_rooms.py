"""Imports inside of the gateway run in one direction: from the process down to the policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.test_borders import ROOT, imports, sources

ROOMS = {
    "policy": set[str](),
    "config": set[str](),
    "http": {"policy"},
    "generation": {"policy"},
    "metrics": {"generation"},
    "replicas": {"policy", "generation"},
    "gateway": {"policy", "config", "http", "generation", "metrics", "replicas"},
    "api": {"policy", "http", "generation", "metrics", "gateway"},
    "app": {"policy", "http", "api", "gateway"},
    "server": {"policy", "config", "http", "gateway", "app"},
    "__main__": {"config", "server"},
}
"""What each room may import beside itself; a module at the top is a room of its own."""
ENDPOINTS = sorted(path.name for path in (ROOT / "gateway" / "api").iterdir() if (path / "route.py").exists())


def room(name: str) -> str:
    """The room of ``gateway.room.module``."""
    return name.split(".")[1]


def inside(path: Path) -> list[str]:
    return [name for name in imports(path) if name.startswith("gateway.")]


def test_every_room_is_in_the_table() -> None:
    assert {path.relative_to(ROOT / "gateway").parts[0].removesuffix(".py") for path in sources("gateway")} - {
        "__init__"
    } == set(ROOMS)


def test_the_table_has_one_direction() -> None:
    above = {name: set(others) for name, others in ROOMS.items()}
    while above:
        lowest = {name for name, others in above.items() if not others}
        assert lowest, f"these import each other: {sorted(above)}"
        above = {name: others - lowest for name, others in above.items() if name not in lowest}


@pytest.mark.parametrize("name", sorted(ROOMS))
def test_a_room_imports_what_is_below_it(name: str) -> None:
    for path in sources("gateway"):
        if path.relative_to(ROOT / "gateway").parts[0].removesuffix(".py") == name:
            strangers = {room(each) for each in inside(path)} - ROOMS[name] - {name}
            assert not strangers, f"{path} imports {strangers}"


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_is_its_own(name: str) -> None:
    """It shares with the others what stands beside them, and nobody but the application knows it."""
    for path in sources("gateway"):
        named = [each for each in inside(path) if each.startswith(f"gateway.api.{name}.")]
        is_its_own = path.is_relative_to(ROOT / "gateway" / "api" / name)
        assert is_its_own or path.name == "app.py" or not named, f"{path} imports {named}"


def test_a_record_and_events_know_no_json() -> None:
    for path in sources("gateway/generation"):
        if path.name != "constraint.py":  # It reads the schemas of tools.
            assert "orjson" not in set(imports(path)), path
