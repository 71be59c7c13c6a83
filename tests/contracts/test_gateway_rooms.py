"""Imports inside the gateway go in one direction: from the process down to the policies."""

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
"""What each room may import besides itself. A room is a folder, or a module at the top level."""
ENDPOINTS = sorted(path.name for path in (ROOT / "gateway" / "api").iterdir() if (path / "route.py").exists())


def room(name: str) -> str:
    """The room of ``gateway.room.module``."""
    return name.split(".")[1]


def inside(path: Path) -> list[str]:
    return [name for name in imports(path) if name.startswith("gateway.")]


def test_table_lists_every_room() -> None:
    assert {path.relative_to(ROOT / "gateway").parts[0].removesuffix(".py") for path in sources("gateway")} - {
        "__init__"
    } == set(ROOMS)


def test_table_has_no_cycles() -> None:
    above = {name: set(others) for name, others in ROOMS.items()}
    while above:
        lowest = {name for name, others in above.items() if not others}
        assert lowest, f"cyclic imports: {sorted(above)}"
        above = {name: others - lowest for name, others in above.items() if name not in lowest}


@pytest.mark.parametrize("name", sorted(ROOMS))
def test_room_imports_only_what_the_table_allows(name: str) -> None:
    for path in sources("gateway"):
        if path.relative_to(ROOT / "gateway").parts[0].removesuffix(".py") == name:
            forbidden = {room(each) for each in inside(path)} - ROOMS[name] - {name}
            assert not forbidden, f"{path} imports {forbidden}"


@pytest.mark.parametrize("name", ENDPOINTS)
def test_endpoints_do_not_import_each_other(name: str) -> None:
    """Only the application imports an endpoint; what endpoints share is outside their folders."""
    for path in sources("gateway"):
        named = [each for each in inside(path) if each.startswith(f"gateway.api.{name}.")]
        is_its_own = path.is_relative_to(ROOT / "gateway" / "api" / name)
        assert is_its_own or path.name == "app.py" or not named, f"{path} imports {named}"


def test_generation_does_not_serialise_json() -> None:
    for path in sources("gateway/generation"):
        if path.name != "constraint.py":  # It parses the schemas of tools.
            assert "orjson" not in set(imports(path)), path
