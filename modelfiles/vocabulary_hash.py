"""A hash by which services find out whether they were started with the same vocabulary.

A large vocabulary is sampled, because the bytes of all tokens of a loaded tokenizer take 0.2 s for 150,000 tokens: the
first 1,024 ids, the last 2,048 (added tokens are at either end), and every n-th id, at least 4,096 of them. Fewer than
8,192 tokens are hashed in full. Trailing ids that a GGUF file marks as unused do not count: they pad the vocabulary to
the rows of the weights, and other files of the same model lack them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from modelfiles.errors import ModelFileError
from modelfiles.token_spelling import spelling_of

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

_FIRST: Final = 1024
_LAST: Final = 2048
_SPREAD: Final = 4096

UNKNOWN: Final = ""
"""The hash of a vocabulary whose bytes are not known. It is not compared."""


def vocabulary_hash(size: int, bytes_of: Callable[[int], bytes], unused: Collection[int] = ()) -> str:
    """sha256 of the tokens with ids below ``size``, hexadecimal. ``bytes_of`` gives a token's bytes by its id."""
    while size - 1 in unused:
        size -= 1
    tokens = [bytes_of(token_id) for token_id in sampled_ids(size)]
    return hashlib.sha256(b"%d " % size + b"".join([b"%d %b" % (len(token), token) for token in tokens])).hexdigest()


def sampled_ids(size: int) -> list[int]:
    """Ids of the hashed tokens in a vocabulary of ``size`` tokens, in order."""
    spread = range(0, size, max(1, size // _SPREAD))
    return sorted({*range(min(_FIRST, size)), *range(max(0, size - _LAST), size), *spread})


def hash_of_tokenizer(tokenizer: Tokenizer, size: int, unused: Collection[int] = ()) -> str:
    """The hash for a loaded tokenizer with ``size`` ids; ``UNKNOWN`` if its decoder is not supported."""
    decoder: dict[str, Any] = {} if tokenizer.decoder is None else json.loads(tokenizer.decoder.__getstate__())
    try:
        spelling = spelling_of({"decoder": decoder})
    except ModelFileError:
        return UNKNOWN
    added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()

    def bytes_of(token_id: int) -> bytes:
        if token_id in added:
            return spelling.added_token(added[token_id].content)
        token = tokenizer.id_to_token(token_id)
        return b"" if token is None else spelling.model_token(token)

    return vocabulary_hash(size, bytes_of, unused)
