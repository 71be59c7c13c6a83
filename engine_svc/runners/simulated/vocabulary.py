"""Vocabulary size and end-of-sequence tokens of a tokenizer, which is all that the simulated model needs of it."""

from __future__ import annotations

from modelfiles.errors import ModelFileError
from modelfiles.vocabulary_facts import VocabularyFacts, read_vocabulary_facts
from protos import simulated
from svclib.config import SettingsError


def load_vocabulary(source: str) -> VocabularyFacts:
    """From a Hugging Face id, a folder, a GGUF file, or by default the simulated model's own.

    Raises ``SettingsError`` if there is no tokenizer in it.
    """
    try:
        return read_vocabulary_facts(source or simulated.MODEL_NAME)
    except ModelFileError as error:
        raise SettingsError(f"tokenizer: {error}") from None
