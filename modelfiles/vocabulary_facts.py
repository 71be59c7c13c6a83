"""The number of token ids of a tokenizer, and which of them end a turn, read without loading the tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from modelfiles.errors import ModelFileError
from modelfiles.gguf_vocabulary import read_vocabulary
from modelfiles.special_tokens import named_ids, named_tokens, spelling_of_token
from modelfiles.tokenizer_json import added_tokens, model_tokens, read_tokenizer_files
from modelfiles.turn_ends import turn_ends_in
from protos import simulated


@dataclass(frozen=True, slots=True)
class VocabularyFacts:
    """Every token id is smaller than ``size``."""

    size: int
    eos_token_ids: tuple[int, ...]


def read_vocabulary_facts(source: str) -> VocabularyFacts:
    """From ``simulated``, a folder, a GGUF file or a Hugging Face id. Raises ``ModelFileError``."""
    if source == simulated.MODEL_NAME:
        return VocabularyFacts(simulated.VOCAB_SIZE, (simulated.EOS_TOKEN_ID,))
    path = Path(source).expanduser()
    return _from_gguf(path) if path.is_file() else _from_files(source)


def _from_gguf(path: Path) -> VocabularyFacts:
    try:
        vocabulary = read_vocabulary(path)
    except (ModelFileError, OSError) as error:
        raise ModelFileError(f"cannot read a tokenizer from {path}: {error}") from None
    return VocabularyFacts(len(vocabulary.tokens), vocabulary.turn_ends)


def _from_files(source: str) -> VocabularyFacts:
    description, config, special_tokens_map = read_tokenizer_files(source)
    try:
        tokens = {token_id: token for token, token_id in model_tokens(description["model"])}
        added = {token_id: str(token["content"]) for token_id, token in added_tokens(description, config)}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"tokenizer.json is not in the usual format: {error!r}") from error
    named = named_ids(tokens, added, named_tokens(config, special_tokens_map))
    eos = spelling_of_token(config.get("eos_token"))
    own = [token_id for token_id, token in named.items() if token == eos]
    ends = tuple(dict.fromkeys((*turn_ends_in(source), *own)))
    return VocabularyFacts(max((*tokens, *added, *named), default=-1) + 1, ends)
