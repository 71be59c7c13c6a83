"""Paths and make targets that the docs name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path for path in ROOT.rglob("*.md") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
TOP = {path.name for path in ROOT.iterdir()}
PATH_LIKE = re.compile(r"`([\w.\-]+(?:/[\w.\-*{},]*)+|[\w\-]+\.(?:py|md|proto|toml|yml|yaml|txt))(?::\d+)?`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def test_there_are_documents() -> None:
    names = {str(path.relative_to(ROOT)) for path in DOCUMENTS}
    assert {"README.md", "docs/life-of-a-request.md", "docs/architecture.md", "docs/benchmarks.md"} <= names


def exists(document: Path, name: str) -> bool:
    bases = (ROOT, document.parent)
    if any(character in name for character in "*{"):
        pattern = re.sub(r"\{[^}]*\}", "*", name).rstrip("/")
        return any(True for base in bases for _ in base.glob(pattern))
    return any((base / name).exists() for base in bases)


def is_ours(document: Path, name: str) -> bool:
    """Whether a path-like word is a path of this repository, not a route or a media type."""
    first = name.partition("/")[0]
    return "/" not in name or first in TOP or (document.parent / first).exists()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_named_in_documents_exist(document: Path) -> None:
    text = document.read_text()
    named = [name for name in PATH_LIKE.findall(text) if is_ours(document, name)]
    assert [name for name in named if not exists(document, name)] == []
    assert [link for link in LINK.findall(text) if not exists(document, link)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_named_in_documents_exist(document: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`(?:[A-Z_]+=\S+ )*make ([a-z][\w-]*)`", document.read_text()))
    assert named <= targets
