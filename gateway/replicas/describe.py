"""The model that three replicas serve together, from what each says of itself."""

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
    """Which formats the operator wants: a name, ``none``, or ``auto``."""

    tool_parser: str
    reasoning_parser: str


@lru_cache(maxsize=64)
def model_of(
    tokenizer: TokenizerInfo, engine: EngineInfo, detokenizer: DetokenizerInfo, parsers: ParserChoice
) -> Model:
    """Raises ``Unavailable`` when the operator wants a format that the detokenizer does not know.

    The same when the three services cannot have been started with the same model.
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
        no_tools_because=_no_tools_because(tool_parser, tokenizer, parsers),
        reasoning_parser=reasoning_parser,
        knows_thinking=tokenizer.knows_thinking,
        thinks=tokenizer.knows_thinking or bool(reasoning_parser),
        template_variables=tokenizer.template_variables,
        reasoning_tags=dict(tokenizer.reasoning_tags).get(reasoning_parser),
        supports_constraints=engine.supports_constraints,
        call_syntax=dict(detokenizer.call_syntaxes).get(tool_parser),
        eos_token_ids=tokenizer.eos_token_ids,
        template_version=tokenizer.template_version,
        fingerprint=_fingerprint(engine.model_path, engine.dtype, tokenizer.template_version),
        warnings=tuple(_warnings(tokenizer, detokenizer, parsers)),
    )


def _check_vocabularies(tokenizer: TokenizerInfo, engine: EngineInfo, detokenizer: DetokenizerInfo) -> None:
    """Checks that all three services have the same tokens. The engine may have more ids, as most weights do.

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
        f"GATEWAY_{kind.upper()}_PARSER is {wanted!r}, which the detokenizer does not know; "
        f"it knows {', '.join(sorted(known))}"
    )


def _warnings(tokenizer: TokenizerInfo, detokenizer: DetokenizerInfo, parsers: ParserChoice) -> Iterator[str]:
    suggested = tokenizer.reasoning_parser
    if parsers.reasoning_parser == "auto" and suggested and suggested not in detokenizer.reasoning_parsers:
        yield (
            f"the model's chat template has thinking in the format {suggested}, which nothing here reads: thinking "
            f"will come as content; known are {', '.join(sorted(detokenizer.reasoning_parsers))}, and with "
            "GATEWAY_REASONING_PARSER=none this is not said"
        )


def _no_tools_because(tool_parser: str, tokenizer: TokenizerInfo, parsers: ParserChoice) -> str:
    if not tokenizer.shows_tools:
        return "the model's chat template does not show them to the model"
    if tool_parser:
        return ""
    if parsers.tool_parser == "none":
        return "GATEWAY_TOOL_PARSER is none"
    if tokenizer.tool_parser:
        return f"no tool parser for the format {tokenizer.tool_parser}"
    return "the format of this model's calls was not recognised; name it with GATEWAY_TOOL_PARSER"


def _fingerprint(*facts: str) -> str:
    return f"fp_{hashlib.sha256(chr(0).join(facts).encode()).hexdigest()[:12]}"
