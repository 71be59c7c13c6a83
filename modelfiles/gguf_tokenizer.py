"""The tokenizer of a GGUF file, built from the file's metadata: model, added tokens, special tokens, chat templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer

from modelfiles.gguf_facts import TEMPLATE_KEY, TOKENIZER_KEYS, GgufFacts
from modelfiles.gguf_metadata import read_metadata
from modelfiles.gguf_models import builder_of
from modelfiles.gguf_vocabulary import ADDED_KINDS, MODEL_KEY, SPECIAL_KINDS, GgufVocabulary, TokenKind

_NAMED_TEMPLATE: Final = TEMPLATE_KEY + "."
_ROLE_NAMES: Final = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unk", "pad_token": "pad"}
_MASK_STRIPS_LEFT: Final = ("jina-v2-de", "jina-v2-es", "jina-v2-code", "nomic-bert-moe", "jina-bert-v3", "modern-bert")
_PHI3: Final = ("phi-3", "phi3")
_PHI3_WITHOUT_STRIP: Final = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """A tokenizer and the other facts of its file."""

    tokenizer: Tokenizer
    vocabulary: GgufVocabulary
    special_tokens: Mapping[str, str]
    """Spellings by the variables of chat templates, such as ``bos_token``."""
    chat_templates: Mapping[str, str]
    """By name; ``default`` is the one without a name in the file."""


def load_gguf_tokenizer(path: Path) -> GgufTokenizer:
    """Raises ``ModelFileError`` naming what is damaged or not supported, or ``OSError``."""
    metadata = read_metadata(path, TOKENIZER_KEYS, prefixes=(_NAMED_TEMPLATE,))
    build = builder_of(metadata.get(MODEL_KEY))
    facts = GgufFacts(GgufVocabulary.of(metadata), metadata)
    tokenizer = build(facts)
    _add_tokens(tokenizer, facts)
    return GgufTokenizer(tokenizer, facts.vocabulary, _special_tokens(facts.vocabulary), _chat_templates(metadata))


def _add_tokens(tokenizer: Tokenizer, facts: GgufFacts) -> None:
    """Add control and user-defined tokens, under their ids in the file, so that they are found whole in a text."""
    vocabulary = facts.vocabulary
    rstrip, lstrip = _with_rstrip(facts), _with_lstrip(facts)
    for special in (True, False):
        kinds = SPECIAL_KINDS if special else (TokenKind.USER_DEFINED,)
        added = [
            AddedToken(token, lstrip=token in lstrip, rstrip=token in rstrip, normalized=False, special=special)
            for token in (vocabulary.tokens[token_id] for token_id in vocabulary.ids_of_kinds(kinds))
            if tokenizer.token_to_id(token) is not None  # all but runs of spaces, which merge as other text does
        ]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)


def _with_rstrip(facts: GgufFacts) -> frozenset[str]:
    """Added tokens that strip white space on their right. GGUF has no key for it; llama.cpp goes by names too."""
    vocabulary = facts.vocabulary
    is_phi3 = vocabulary.architecture == "phi3" and vocabulary.model == "llama"
    if not is_phi3 and not any(part in facts.model_name for part in _PHI3):
        return frozenset()
    added = {vocabulary.tokens[token_id] for token_id in vocabulary.ids_of_kinds(ADDED_KINDS)}
    return frozenset(added - set(_PHI3_WITHOUT_STRIP))


def _with_lstrip(facts: GgufFacts) -> frozenset[str]:
    names = (str(facts.get("pre", "")), facts.vocabulary.architecture, facts.model_name)
    return frozenset(("<mask>", "[MASK]") if any(part in name for part in _MASK_STRIPS_LEFT for name in names) else ())


def _special_tokens(vocabulary: GgufVocabulary) -> dict[str, str]:
    """Special tokens by name. Some files name an ordinary word as the padding token; it stays a word."""
    ids = {name: vocabulary.roles[role] for name, role in _ROLE_NAMES.items() if role in vocabulary.roles}
    return {name: vocabulary.tokens[n] for name, n in ids.items() if vocabulary.kinds[n] in ADDED_KINDS}


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    named = {
        key.removeprefix(_NAMED_TEMPLATE): text for key, text in metadata.items() if key.startswith(_NAMED_TEMPLATE)
    }
    default = {"default": metadata[TEMPLATE_KEY]} if metadata.get(TEMPLATE_KEY) else {}
    return {name: text for name, text in (named | default).items() if isinstance(text, str)}
