"""Imports inside the gateway run in one direction: from the process down to the policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.test_borders import ROOT, imports, sources

ALLOWED_IMPORTS = {
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
"""The packages that each package may import besides itself; a top-level module counts as a package."""
ENDPOINTS = sorted(path.name for path in (ROOT / "gateway" / "api").iterdir() if (path / "route.py").exists())


def package(name: str) -> str:
    """The package of ``gateway.PACKAGE.module``."""
    return name.split(".")[1]


def inside(path: Path) -> list[str]:
    return [name for name in imports(path) if name.startswith("gateway.")]


def test_every_gateway_package_is_in_the_table() -> None:
    assert {path.relative_to(ROOT / "gateway").parts[0].removesuffix(".py") for path in sources("gateway")} - {
        "__init__"
    } == set(ALLOWED_IMPORTS)


def test_the_table_has_no_cycles() -> None:
    above = {name: set(others) for name, others in ALLOWED_IMPORTS.items()}
    while above:
        lowest = {name for name, others in above.items() if not others}
        assert lowest, f"cyclic imports: {sorted(above)}"
        above = {name: others - lowest for name, others in above.items() if name not in lowest}


@pytest.mark.parametrize("name", sorted(ALLOWED_IMPORTS))
def test_gateway_packages_import_only_what_the_table_allows(name: str) -> None:
    for path in sources("gateway"):
        if path.relative_to(ROOT / "gateway").parts[0].removesuffix(".py") == name:
            forbidden = {package(each) for each in inside(path)} - ALLOWED_IMPORTS[name] - {name}
            assert not forbidden, f"{path} imports {forbidden}"


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_is_imported_only_by_itself_and_the_app(name: str) -> None:
    """Endpoints share only the modules of ``gateway/api/``, and only the application imports them."""
    for path in sources("gateway"):
        named = [each for each in inside(path) if each.startswith(f"gateway.api.{name}.")]
        is_its_own = path.is_relative_to(ROOT / "gateway" / "api" / name)
        assert is_its_own or path.name == "app.py" or not named, f"{path} imports {named}"


def test_generation_does_not_import_orjson() -> None:
    for path in sources("gateway/generation"):
        if path.name != "constraint.py":  # It parses the schemas of tools.
            assert "orjson" not in set(imports(path)), path
