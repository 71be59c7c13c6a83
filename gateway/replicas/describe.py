"""The model that a tokenizer, an engine and a detokenizer serve together, from their descriptions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gateway.generation.model import Model
from gateway.replicas.info import DetokenizerInfo, EngineInfo, TokenizerInfo
from svclib.errors import Unavailable


@dataclass(frozen=True, slots=True)
class ParserChoice:
    """The parsers that the operator has set: a name, ``none``, or ``auto``."""

    tool_parser: str
    reasoning_parser: str


@lru_cache(maxsize=64)
def build_model(
    tokenizer: TokenizerInfo, engine: EngineInfo, detokenizer: DetokenizerInfo, parsers: ParserChoice
) -> Model:
    """Raises ``Unavailable`` for a parser that the detokenizer does not have.

    Also when the vocabularies show that the services were started with different models.
    """
    _check_vocabularies(tokenizer, engine, detokenizer)
    tool_parser = _choose("tool", parsers.tool_parser, tokenizer.tool_parser, detokenizer.tool_parsers)
    reasoning_parser = _choose(
        "reasoning", parsers.reasoning_parser, tokenizer.reasoning_parser, detokenizer.reasoning_parsers
    )
    return Model(
        max_context_length=engine.max_context_length,
        vocab_size=engine.vocab_size,
        simulated=engine.simulated,
        generates=engine.generates,
        tool_parser=tool_parser,
        tools_unsupported_reason=_tools_unsupported_reason(tool_parser, tokenizer, parsers),
        reasoning_parser=reasoning_parser,
        template_supports_thinking=tokenizer.template_supports_thinking,
        is_reasoning_model=tokenizer.template_supports_thinking or bool(reasoning_parser),
        template_variables=tokenizer.template_variables,
        reasoning_tags=dict(tokenizer.reasoning_tags).get(reasoning_parser),
        supports_constraints=engine.supports_constraints,
        call_syntax=dict(detokenizer.call_syntaxes).get(tool_parser),
        eos_token_ids=tokenizer.eos_token_ids,
        fingerprint=_fingerprint(engine.model_path, engine.dtype, engine.kv_cache_dtype, tokenizer.template_version),
        warnings=tuple(_warnings(tokenizer, detokenizer, parsers)),
    )


def _check_vocabularies(tokenizer: TokenizerInfo, engine: EngineInfo, detokenizer: DetokenizerInfo) -> None:
    """All three services have the same tokens; the engine may have more ids (padding).

    Raises ``Unavailable`` with the numbers of ids, or with the hashes of the tokens if the numbers agree.
    """
    ids, texts = tokenizer.vocab_size, detokenizer.vocab_size
    if ids and texts and ids != texts:
        raise Unavailable(
            f"not ready: the tokenizer has {ids} token ids and the detokenizer has {texts}; "
            "they were started with different models"
        )
    for name, size in (("tokenizer", ids), ("detokenizer", texts)):
        if size > engine.vocab_size:
            raise Unavailable(
                f"not ready: the {name} has {size} token ids and the engine has {engine.vocab_size}; "
                "they were started with different models"
            )
    _check_hashes(tokenizer, engine, detokenizer)


def _check_hashes(tokenizer: TokenizerInfo, engine: EngineInfo, detokenizer: DetokenizerInfo) -> None:
    hashes = {
        "tokenizer": tokenizer.vocabulary_hash,
        "engine": engine.vocabulary_hash,
        "detokenizer": detokenizer.vocabulary_hash,
    }
    known = {name: vocabulary_hash for name, vocabulary_hash in hashes.items() if vocabulary_hash}
    if len(set(known.values())) > 1:
        different = ", ".join(f"{name} {vocabulary_hash[:12]}" for name, vocabulary_hash in known.items())
        raise Unavailable(
            f"not ready: the services have different vocabularies (hashes: {different}); "
            "they were started with different models"
        )


def _choose(kind: str, wanted: str, suggested: str, known: frozenset[str]) -> str:
    match wanted:
        case "none":
            return ""
        case "auto":
            return suggested if suggested in known else ""
        case _ if wanted in known:
            return wanted
    raise Unavailable(
        f"GATEWAY_{kind.upper()}_PARSER is {wanted!r}, which the detokenizer does not support; "
        f"supported: {', '.join(sorted(known))}"
    )


def _warnings(tokenizer: TokenizerInfo, detokenizer: DetokenizerInfo, parsers: ParserChoice) -> Iterator[str]:
    suggested = tokenizer.reasoning_parser
    if parsers.reasoning_parser == "auto" and suggested and suggested not in detokenizer.reasoning_parsers:
        yield (
            f"no reasoning parser for the format {suggested} of the model's chat template: reasoning will be part of "
            f"content; supported: {', '.join(sorted(detokenizer.reasoning_parsers))}; set "
            "GATEWAY_REASONING_PARSER=none to silence this warning"
        )


def _tools_unsupported_reason(tool_parser: str, tokenizer: TokenizerInfo, parsers: ParserChoice) -> str:
    if not tokenizer.template_supports_tools:
        return "the model's chat template does not use tools"
    if tool_parser:
        return ""
    if parsers.tool_parser == "none":
        return "GATEWAY_TOOL_PARSER is none"
    if tokenizer.tool_parser:
        return f"no tool parser for the format {tokenizer.tool_parser} of the model's chat template"
    return "the tool-call format of this model was not recognised; set GATEWAY_TOOL_PARSER"


def _fingerprint(*facts: str) -> str:
    return f"fp_{hashlib.sha256(chr(0).join(facts).encode()).hexdigest()[:12]}"
