"""Loads a model's tokenizer and chat templates: from a Hugging Face folder or id, a GGUF file, or the simulated model.

transformers takes a second to import, and only Hugging Face files need it, so it is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import Tokenizer

from modelfiles.errors import ModelFileError
from modelfiles.gguf_tokenizer import load_gguf_tokenizer
from modelfiles.gguf_vocabulary import TokenKind
from modelfiles.lfs import check_no_pointers, check_not_pointer
from modelfiles.simulated import CHAT_TEMPLATE, simulated_tokenizer
from modelfiles.turn_ends import turn_ends_in
from protos import simulated


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer and the other facts of its files."""

    tokenizer: Tokenizer
    special_tokens: Mapping[str, str]
    """Spellings by the variables of chat templates, such as ``bos_token``."""
    chat_templates: Mapping[str, str]
    """By name. Most models have only ``default``; some also ``tool_use``, for conversations with tools."""
    eos_token_ids: tuple[int, ...]
    """Tokens that end a turn, by the files; the chat template may add more."""
    unused_ids: frozenset[int] = frozenset()
    """Tokens that the file marks as unused."""

    @property
    def bos_token_id(self) -> int | None:
        return self.tokenizer.token_to_id(self.special_tokens.get("bos_token", ""))


def load_tokenizer(source: str, chat_template: Path | None = None) -> LoadedTokenizer:
    """Load from ``simulated``, a .gguf file, a folder or a Hugging Face id; ``chat_template`` replaces its templates.

    Raises ``ModelFileError``.
    """
    loaded = _load(source)
    if chat_template is None:
        return loaded
    try:
        check_not_pointer(chat_template)
        return replace(loaded, chat_templates={"default": chat_template.read_text(encoding="utf-8")})
    except (OSError, UnicodeDecodeError, ModelFileError) as error:
        raise ModelFileError(f"cannot read the chat template {chat_template}: {error}") from None


def _load(source: str) -> LoadedTokenizer:
    if source == simulated.MODEL_NAME:
        return _simulated()
    path = Path(source).expanduser()
    try:
        return (
            _from_gguf(path) if path.suffix == ".gguf" else _from_hugging_face(str(path) if path.is_dir() else source)
        )
    except Exception as error:  # The libraries raise many kinds of errors for invalid files.
        raise ModelFileError(f"cannot load a tokenizer from {source}: {error}") from error


def _simulated() -> LoadedTokenizer:
    return LoadedTokenizer(
        tokenizer=simulated_tokenizer(),
        special_tokens={"eos_token": simulated.EOS_TOKEN},
        chat_templates={"default": CHAT_TEMPLATE},
        eos_token_ids=(simulated.EOS_TOKEN_ID,),
    )


def _from_gguf(path: Path) -> LoadedTokenizer:
    loaded = load_gguf_tokenizer(path)
    return LoadedTokenizer(
        tokenizer=loaded.tokenizer,
        special_tokens=loaded.special_tokens,
        chat_templates=loaded.chat_templates,
        eos_token_ids=loaded.vocabulary.turn_ends,
        unused_ids=frozenset(loaded.vocabulary.ids_of_kinds((TokenKind.UNUSED,))),
    )


def _from_hugging_face(source: str) -> LoadedTokenizer:
    """From files that transformers reads. They must include a tokenizer of the ``tokenizers`` library."""
    from transformers import AutoTokenizer

    _log_with_ours()
    is_local = Path(source).is_dir()
    if is_local:
        check_no_pointers(Path(source), ("*.json", "*.jinja", "*.model"))
    backend = AutoTokenizer.from_pretrained(source, local_files_only=is_local, trust_remote_code=False)
    if not backend.is_fast:
        raise ModelFileError(f"{type(backend).__name__} is not supported: a tokenizer.json is required")
    templates = backend.chat_template or {}
    own = () if backend.eos_token_id is None else (backend.eos_token_id,)
    return LoadedTokenizer(
        tokenizer=backend.backend_tokenizer,
        special_tokens=backend.special_tokens_map,
        chat_templates={"default": templates} if isinstance(templates, str) else templates,
        eos_token_ids=tuple(dict.fromkeys((*turn_ends_in(source), *own))),
    )


def _log_with_ours() -> None:
    """Send the logs of transformers through our logging."""
    from transformers.utils import logging

    logging.disable_default_handler()
    logging.enable_propagation()
