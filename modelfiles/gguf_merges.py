"""The merges of a BPE vocabulary in a GGUF file: listed in the file, or derived from the scores of the tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelfiles.errors import ModelFileError


def merges_of(listed: Sequence[str]) -> list[tuple[str, str]]:
    """From ``tokenizer.ggml.merges``: pairs joined by a space; the first token may itself start with a space.

    Raises ``ModelFileError``.
    """
    merges = []
    for number, merge in enumerate(listed):
        left, found, right = merge[:1] + merge[1:].partition(" ")[0], " " in merge[1:], merge[1:].partition(" ")[2]
        if not found or not right:
            raise ModelFileError(f"tokenizer.ggml.merges[{number}] is {merge[:100]!r}, not a pair")
        merges.append((left, right))
    return merges


def merges_by_score(ids: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """All pairs of tokens that form a third token, the token with the best score first.

    This is the merge order of sentencepiece; of several pairs for one token, the shortest first part comes first.
    """
    ranked = sorted(ids, key=lambda token: (-scores[ids[token]], ids[token]))
    return [
        (token[:cut], token[cut:])
        for token in ranked
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
