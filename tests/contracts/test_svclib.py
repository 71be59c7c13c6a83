"""``svclib`` has no names of the LLM domain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "svclib"
NOUNS = frozenset(
    {
        *("chat", "checkpoint", "completion", "completions", "conversation", "detokenizer", "embedding", "engine"),
        *("gguf", "grammar", "logits", "logprob", "logprobs", "model", "models", "prompt", "prompts", "sampling"),
        *("template", "templates", "tensor", "token", "tokenizer", "tokens", "tool", "tools", "vocabulary", "weights"),
    }
)
ALLOWED = {
    "errors.py": {"Model"},  # ModelNotFound: a class of the one error tree, with its row in the table
    "config.py": {"model"},  # pydantic's own name
}
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def names(tree: ast.AST) -> Iterator[str]:
    """Identifiers that the module defines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_domain_nouns(path: Path) -> None:
    allowed = {word.lower() for word in ALLOWED.get(path.name, ())}
    words = {(name, word.lower()) for name in names(ast.parse(path.read_text())) for word in WORD.findall(name)}
    found = sorted(name for name, word in words if word in NOUNS - allowed)
    assert not found, f"{path} defines {found}"


def test_the_allow_list_is_needed() -> None:
    for file, words in ALLOWED.items():
        given = {word for name in names(ast.parse((FOLDER / file).read_text())) for word in WORD.findall(name)}
        assert words <= given, file
