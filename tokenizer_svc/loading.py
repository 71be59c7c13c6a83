"""Loads tokenizers: a Hugging Face folder or id, a GGUF file, or the simulated model's.

transformers takes a second to import, and the simulated model needs none of it: so it is imported where it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from protos import simulated
from svclib.config import SettingsError
from tokenizer_svc.simulated import CHAT_TEMPLATE, simulated_tokenizer

_GENERATION_CONFIG: Final = "generation_config.json"


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer and what its files say of it."""

    tokenizer: Tokenizer
    special_tokens: Mapping[str, str]
    """Spellings by the names that templates know, such as ``bos_token``."""
    chat_templates: Mapping[str, str]
    """Most models have one, ``default``; some have ``tool_use`` beside it for conversations with tools."""
    eos_token_ids: tuple[int, ...]
    knows_turn_ends: bool
    """Whether ``eos_token_ids`` are all tokens that end a turn; else there may be more in the template."""

    @property
    def bos_token_id(self) -> int | None:
        return self.tokenizer.token_to_id(self.special_tokens.get("bos_token", ""))


def load(source: str, chat_template: Path | None = None) -> LoadedTokenizer:
    """Load from ``simulated``, a .gguf file, a folder or a Hugging Face id; ``chat_template`` replaces its templates.

    Raises ``SettingsError``.
    """
    loaded = _load(source)
    if chat_template is None:
        return loaded
    try:
        return replace(loaded, chat_templates={"default": chat_template.read_text(encoding="utf-8")})
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the chat template {chat_template}: {error}") from None


def _load(source: str) -> LoadedTokenizer:
    if source == simulated.MODEL_NAME:
        return _simulated()
    path = Path(source).expanduser()
    try:
        return (
            _from_gguf(path) if path.suffix == ".gguf" else _from_hugging_face(str(path) if path.is_dir() else source)
        )
    except SettingsError:
        raise
    except Exception as error:  # The libraries raise whatever they like at files they do not understand.
        raise SettingsError(f"cannot load a tokenizer from {source}: {error}") from error


def _simulated() -> LoadedTokenizer:
    return LoadedTokenizer(
        tokenizer=simulated_tokenizer(),
        special_tokens={"eos_token": simulated.EOS_TOKEN},
        chat_templates={"default": CHAT_TEMPLATE},
        eos_token_ids=(simulated.EOS_TOKEN_ID,),
        knows_turn_ends=True,
    )


def _logging_with_ours() -> None:
    """Let what transformers logs go where our logs go, in their form."""
    from transformers.utils import logging

    logging.disable_default_handler()
    logging.enable_propagation()


def _from_gguf(path: Path) -> LoadedTokenizer:
    from svclib.gguf_tokenizer import load_gguf_tokenizer

    _logging_with_ours()
    backend, turn_ends = load_gguf_tokenizer(path)
    return _loaded(backend, turn_ends, knows_turn_ends=False)


def _from_hugging_face(source: str) -> LoadedTokenizer:
    from transformers import AutoTokenizer

    _logging_with_ours()
    is_local = Path(source).is_dir()
    backend = AutoTokenizer.from_pretrained(source, local_files_only=is_local, trust_remote_code=False)
    turn_ends = _generation_eos(source)
    return _loaded(backend, turn_ends, knows_turn_ends=bool(turn_ends))


def _loaded(backend: Any, turn_ends: tuple[int, ...], *, knows_turn_ends: bool) -> LoadedTokenizer:
    """From a transformers tokenizer, which must be one of the ``tokenizers`` library."""
    if not backend.is_fast:
        raise SettingsError(f"{type(backend).__name__} is not supported: there must be a tokenizer.json")
    templates = backend.chat_template or {}
    own = () if backend.eos_token_id is None else (backend.eos_token_id,)
    return LoadedTokenizer(
        tokenizer=backend.backend_tokenizer,
        special_tokens=backend.special_tokens_map,
        chat_templates={"default": templates} if isinstance(templates, str) else templates,
        eos_token_ids=tuple(dict.fromkeys((*turn_ends, *own))),
        knows_turn_ends=knows_turn_ends,
    )


def _generation_eos(source: str) -> tuple[int, ...]:
    """End-of-sequence ids of ``generation_config.json``; empty when there is none."""
    from transformers.utils.hub import cached_file

    path = cached_file(
        source,
        _GENERATION_CONFIG,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        return ()
    eos = json.loads(Path(path).read_text(encoding="utf-8")).get("eos_token_id") or []
    return (eos,) if isinstance(eos, int) else tuple(eos)
