"""The merges of a BPE vocabulary in a GGUF file: as it lists them, or as the scores of its tokens imply them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelfiles.errors import ModelFileError


def merges_of(listed: Sequence[str]) -> list[tuple[str, str]]:
    """From ``tokenizer.ggml.merges``: pairs with a space between them, which may also begin the first.

    Raises ``ModelFileError``.
    """
    merges = []
    for number, merge in enumerate(listed):
        left, found, right = merge[:1] + merge[1:].partition(" ")[0], " " in merge[1:], merge[1:].partition(" ")[2]
        if not found or not right:
            raise ModelFileError(f"tokenizer.ggml.merges[{number}] is {merge[:100]!r}, which is no pair")
        merges.append((left, right))
    return merges


def merges_by_score(ids: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """All ways to put a token together of two others, the tokens with the best score first.

    That is the order in which sentencepiece merges; of the ways to one token, the shorter first part comes first.
    """
    ranked = sorted(ids, key=lambda token: (-scores[ids[token]], ids[token]))
    return [
        (token[:cut], token[cut:])
        for token in ranked
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
