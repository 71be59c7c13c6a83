"""Compiles constraints, outside the step loop and within limits.

llguidance does its work without Python's lock, in time and memory that our limits and its own bound; so threads do, and
a client's constraint holds up nobody but the next ones.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

import structlog
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from engine_svc.grammar.lark import schema_param
from engine_svc.grammar.matcher import CompiledGrammar, Vocabulary
from engine_svc.grammar.panics import panics_are_errors
from engine_svc.grammar.reasoning import closing_of
from engine_svc.grammar.source import grammar_of
from engine_svc.grammar.threads import DeepThreads
from engine_svc.grammar.token_bytes import TokenBytes, VocabularyError, read_token_bytes, simulated_tokens
from engine_svc.request import Constraint, Request, Thinking
from engine_svc.weights.source import locate
from protos.simulated import MODEL_NAME
from svclib.errors import InvalidRequest, Overloaded, Unsupported

MAX_COMPILING: Final = 2
"""Constraints that are compiled at once."""
MAX_WAITING: Final = 256
"""Constraints on their way, those that are compiled among them."""

_MAX_LEXER_STATES: Final = 120_000
"""Of half a kB each. A text of bounded length takes nine a character, so it can come to 13,000 characters."""
_MAX_ITEMS: Final = 10_000
"""Of the parser at one place; an optional property takes four."""
_MAX_MESSAGE: Final = 400
_EXCERPT: Final = re.compile(r"\n +\d+ \| ")
_PLACE: Final = re.compile(r"^(at )?\d+\(\d+\): ")
_SCHEMA_FAULT: Final = re.compile(r"at (\d+)\(\d+\): failed to compile JSON schema: ")

log = structlog.get_logger(__name__)


class GrammarCompiler:
    """Immutable but for its threads. ``observe`` is told the seconds that each compilation took."""

    def __init__(self, vocabulary: Vocabulary | None, observe: Callable[[float], None] = lambda _: None) -> None:
        self._vocabulary = vocabulary
        self._observe = observe
        self._threads = DeepThreads(MAX_COMPILING, "grammar") if vocabulary is not None else None
        self._num_attaching = 0

    @property
    def is_supported(self) -> bool:
        """Whether anything can be compiled: the vocabulary is known."""
        return self._vocabulary is not None

    async def attach(self, request: Request) -> Request:
        """The request with its grammar compiled, if it has a constraint.

        Raises ``InvalidRequest`` as ``compile`` does, and for thinking that nothing could close. Raises ``Overloaded``
        when too many are waiting already.
        """
        constraint = request.sampling_params.constraint
        if constraint is None:
            return request
        if self._num_attaching >= MAX_WAITING:
            raise Overloaded("too many constraints are waiting to be compiled", retry_after=1.0)
        self._num_attaching += 1
        try:
            grammar = await asyncio.wrap_future(self._submit(constraint))
        finally:
            self._num_attaching -= 1
        return replace(request, grammar=_behind(request.thinking, grammar))

    def compile(self, constraint: Constraint) -> CompiledGrammar:
        """Raises ``InvalidRequest`` naming the constraint's kind, if it is wrong, too large or not supported.

        A fault in a schema within a grammar is named as ``grammar.json[0]``.
        """
        return self._submit(constraint).result()

    def _submit(self, constraint: Constraint) -> Future[CompiledGrammar]:
        if self._vocabulary is None or self._threads is None:
            raise Unsupported("this model has no tokenizer beside it, which constraints need", param=constraint.kind)
        return self._threads.submit(partial(self._compile, self._vocabulary, constraint))

    @panics_are_errors()
    def _compile(self, vocabulary: Vocabulary, constraint: Constraint) -> CompiledGrammar:
        started = perf_counter()
        grammar = grammar_of(constraint)
        parser = LLMatcher(vocabulary.compiled, grammar, limits=_limits(), log_level=0)
        if parser.is_error():
            raise _fault(constraint, grammar, parser.get_error())
        beginnings = vocabulary.mask(parser.compute_bitmask())
        self._observe(perf_counter() - started)
        if parser.is_error() or not beginnings.any():
            raise InvalidRequest("no text matches the constraint", param=constraint.kind)
        return CompiledGrammar(vocabulary, constraint.kind, parser)

    def close(self) -> None:
        """Compile no more. What is being compiled holds nobody up: the process can end."""
        if self._threads is not None:
            self._threads.close()


def load_vocabulary(source: str, size: int) -> Vocabulary | None:
    """Of ``simulated``, a folder, a GGUF file or a Hugging Face id; None if unknown. ``size`` is the model's."""
    try:
        tokens = simulated_tokens() if source in ("", MODEL_NAME) else read_token_bytes(_place(source))
    except VocabularyError as error:
        log.warning("outputs cannot be constrained", reason=str(error))
        return None
    return vocabulary_of(tokens, size)


def _place(source: str) -> Path:
    """Where the tokenizer is; a folder with one need not hold a model."""
    folder = Path(source).expanduser()
    return folder if (folder / "tokenizer.json").is_file() else locate(source)


def vocabulary_of(tokens: TokenBytes, size: int) -> Vocabulary:
    """Cut or filled up to the model's size. Takes a second for 150,000 tokens."""
    padding = (b"",) * (size - len(tokens.spelled))
    special = frozenset(token_id for token_id in tokens.special if token_id < size)
    tokens = TokenBytes((*tokens.spelled, *padding)[:size], special)
    return Vocabulary(tokens, size, LLTokenizer(_ForLlguidance(tokens)))


def _behind(thinking: Thinking | None, grammar: CompiledGrammar) -> CompiledGrammar:
    """The grammar of what follows the thinking. Raises ``InvalidRequest`` if nothing could close it."""
    if thinking is not None and not closing_of(thinking, grammar.vocabulary.tokens.spelled):
        raise InvalidRequest("these tokens have no text that could be found", param="reasoning_end_token_ids")
    return replace(grammar, thinking=thinking)


class _ForLlguidance(TokenizerWrapper):
    """What llguidance asks of a tokenizer. It is never made to tokenize, because grammars are compiled not to force."""

    def __init__(self, tokens: TokenBytes) -> None:
        self.is_tokenizer_wrapper = True
        self.bos_token_id = None
        self.eos_token_id = len(tokens.spelled)
        self.tokens = [*tokens.spelled, b""]
        self.special_token_ids = list(tokens.special)

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("grammars must have `no_forcing`")


def _limits() -> LLParserLimits:
    return LLParserLimits(max_items_in_row=_MAX_ITEMS, max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)


def _fault(constraint: Constraint, grammar: str, message: str) -> InvalidRequest:
    """llguidance's message on one line, without an excerpt, and without a place that the client has not written."""
    text = _EXCERPT.split(message, maxsplit=1)[0]
    param: str = constraint.kind
    if found := _SCHEMA_FAULT.match(text):
        text = text[found.end() :]
        param = schema_param(grammar, int(found[1])) if constraint.kind == "grammar" else param
    elif constraint.kind != "grammar":
        text = _PLACE.sub("", text)
    if "oneOf constraints" in text:  # the rest of it advises an option that makes no difference between oneOf and anyOf
        text = "oneOf is not supported unless at most one branch can match; use anyOf"
    return InvalidRequest(" ".join(text.split())[:_MAX_MESSAGE], param=param)
