"""Helpers: constraints in short, and what matchers allow, as text."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from engine_svc.constraint import Constraint, Mask, Thinking
from engine_svc.grammar.compiler import GrammarCompiler
from engine_svc.grammar.limits import CompileLimits
from engine_svc.grammar.matcher import CompiledGrammar, SequenceMatcher
from engine_svc.grammar.token_bytes import TokenBytes, simulated_tokens
from engine_svc.grammar.vocabulary import vocabulary_of
from protos import simulated

EOS = simulated.EOS_TOKEN_ID
START, CLOSE = 300, 301
"""Reasoning tags, as single tokens."""
WORDS = ("</thi", "nk>", "nk>{", "nk>\n\n", '{"', '":', "yes", "no", " ", "ya", "ye")
"""Tokens from 310 on, beside those of single bytes."""


def word(text: str) -> int:
    return 310 + WORDS.index(text)


@cache
def compiler() -> GrammarCompiler:
    """Over the simulated model's tokens, the tags and the words. Its time limit does not depend on a busy machine."""
    tokens = dict(enumerate(simulated_tokens().spelled)) | {START: b"<think>", CLOSE: b"</think>"}
    tokens |= {word(text): text.encode() for text in WORDS}
    vocabulary = vocabulary_of(TokenBytes.of(tokens, simulated_tokens().special | {START, CLOSE}), 330)
    return GrammarCompiler(vocabulary, limits=CompileLimits(seconds=60.0))


def schema(value: Any) -> Constraint:
    return Constraint("json_schema", value if isinstance(value, str) else json.dumps(value))


def choice(*texts: str) -> Constraint:
    return Constraint("choice", choices=texts)


def compiled(constraint: Constraint, *, thinking: Thinking | None = None) -> CompiledGrammar:
    return replace(compiler().compile(constraint), thinking=thinking)


def matcher(
    constraint: Constraint, *, eos: Collection[int] = (EOS,), ends: Collection[int] = (EOS,)
) -> SequenceMatcher:
    return compiled(constraint).matcher(eos, ends)


def spelled(text: str) -> list[int]:
    """A text in single-byte tokens."""
    return list(text.encode())


def accepts(constraint: Constraint | CompiledGrammar, text: str) -> bool:
    """Whether the masks allow this text as a whole output."""
    grammar = constraint if isinstance(constraint, CompiledGrammar) else compiled(constraint)
    matcher = grammar.matcher((EOS,), (EOS,))
    token_ids = spelled(text)
    for count, token_id in enumerate(token_ids):
        mask = matcher.allowed(token_ids[:count], may_end=True)
        if mask is None or not mask[token_id]:
            return False
    mask = matcher.allowed(token_ids, may_end=True)
    return mask is None or bool(mask[EOS])


def text_of(token_ids: Iterable[int]) -> str:
    """The text of tokens, words and single bytes."""
    words = {word(text): text.encode() for text in WORDS}
    return b"".join(words.get(token_id) or bytes([token_id]) for token_id in token_ids).decode()


def texts_of(mask: Mask | None) -> set[str]:
    """The texts that a mask allows; special tokens as ``<eos>``, bytes of longer characters left out."""
    assert mask is not None
    names = {EOS: "<eos>", START: "<think>", CLOSE: "</think>"} | {word(text): text for text in WORDS}
    return {names.get(n, chr(n) if n < 128 else "") for n in mask.nonzero()[0].tolist()} - {""}


def letters(text: str) -> set[str]:
    return set(text)


def ids(*parts: int | str) -> list[int]:
    """An output of tokens and texts, texts in single-byte tokens."""
    return [token_id for part in parts for token_id in (_part(part))]


def _part(part: int | str) -> Iterable[int]:
    return [part] if isinstance(part, int) else spelled(part)
