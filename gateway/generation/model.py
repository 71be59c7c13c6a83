"""The served model: what its three services say of it together, and what that means for a request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from gateway.generation.constraint import asked_by, constraint_of
from gateway.generation.peers import (
    CallSyntax,
    Constraint,
    DetokenizerInfo,
    EngineInfo,
    Prompt,
    ReasoningState,
    ReasoningTags,
    Thinking,
    TokenizerInfo,
)
from gateway.generation.request import ChatRequest
from svclib.errors import ContextLengthExceeded, InvalidRequest, ModelNotFound, Unavailable, Unsupported


@dataclass(frozen=True, slots=True)
class ParserChoice:
    """Which formats the operator wants: a name, ``none``, or ``auto``."""

    tool_parser: str
    reasoning_parser: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model as its services describe it. An empty parser is none."""

    max_context_length: int
    vocab_size: int
    simulated: bool
    generates: bool
    tool_parser: str
    no_tools_because: str
    """Why tools cannot be offered; empty: they can."""
    reasoning_parser: str
    knows_thinking: bool
    thinks: bool
    """As far as its template or the operator says."""
    template_variables: frozenset[str]
    reasoning_tags: ReasoningTags | None
    """None: no thinking is looked for, or it has no pair of tags."""
    supports_constraints: bool
    call_syntax: CallSyntax | None
    """None: calls can be read, but the model cannot be made to write them."""
    template_version: str
    fingerprint: str
    """Changes with the weights, their element type and the template; see ``system_fingerprint``."""
    warnings: tuple[str, ...]
    """What an operator should know, as sentences."""

    @classmethod
    @lru_cache(maxsize=64)
    def of(
        cls, tokenizer: TokenizerInfo, engine: EngineInfo, detokenizer: DetokenizerInfo, parsers: ParserChoice
    ) -> Self:
        """Raises ``Unavailable`` when the operator wants a format that the detokenizer does not know.

        The same when the three services cannot have been started with the same model.
        """
        _check_vocabularies(tokenizer, engine, detokenizer)
        tool_parser = _choose("tool", parsers.tool_parser, tokenizer.tool_parser, detokenizer.tool_parsers)
        reasoning_parser = _choose(
            "reasoning", parsers.reasoning_parser, tokenizer.reasoning_parser, detokenizer.reasoning_parsers
        )
        return cls(
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
            template_version=tokenizer.template_version,
            fingerprint=_fingerprint(engine.model_path, engine.dtype, tokenizer.template_version),
            warnings=tuple(_warnings(tokenizer, detokenizer, parsers)),
        )

    def check(self, request: ChatRequest) -> None:
        """What can be said before the prompt is known. Raises ``InvalidRequest`` naming the field."""
        if not self.generates:
            raise Unsupported("this model embeds and does not generate, so it cannot chat", param="model")
        if request.tools and self.no_tools_because:
            raise Unsupported(f"tools are not supported: {self.no_tools_because}", param="tools")
        if request.script is not None and not self.simulated:
            raise Unsupported("simulate needs the simulated model", param="simulate")
        self._check_constraint(request)
        self._check_token_ids("stop_token_ids", request.sampling.stop_token_ids)
        self._check_token_ids("logit_bias", request.sampling.logit_bias)

    def check_length(self, request: ChatRequest, prompt_tokens: int) -> None:
        """Whether prompt and answer fit into the context. Raises ``InvalidRequest`` with both numbers."""
        context = self.max_context_length
        if prompt_tokens >= context:
            raise ContextLengthExceeded(
                f"the messages are {prompt_tokens} tokens long and the model's context has {context}, "
                "of which at least one must be left for the answer",
                param="messages",
            )
        max_tokens = request.sampling.max_tokens
        if max_tokens is not None and prompt_tokens + max_tokens > context:
            name = request.max_tokens_param
            raise InvalidRequest(
                f"{name} is {max_tokens} and the messages are {prompt_tokens} tokens long, together more than the "
                f"model's context of {context}; at most {context - prompt_tokens} can be generated",
                param=name,
            )

    def reasoning_state(self, prompt: Prompt) -> ReasoningState:
        """Where the answer starts. A template that knows no thinking cannot close it: the answer itself tells."""
        if prompt.reasoning_state is ReasoningState.CLOSED and not self.knows_thinking:
            return ReasoningState.UNDECIDED
        return prompt.reasoning_state

    def constraint(self, request: ChatRequest) -> Constraint | None:
        """What the output must match, of a request that was checked; None: anything will do."""
        return constraint_of(request, self.call_syntax)

    def thinking(self, prompt: Prompt) -> Thinking | None:
        """What a constraint leaves free; None: nothing."""
        state = self.reasoning_state(prompt)
        if self.reasoning_tags is None or state is ReasoningState.CLOSED:
            return None
        return Thinking(state, self.reasoning_tags)

    def _check_constraint(self, request: ChatRequest) -> None:
        param = asked_by(request)
        if not param:
            return
        reason = ""
        if not self.supports_constraints:
            reason = "the engine cannot constrain what this model writes"
        elif request.tools and self.call_syntax is None:
            reason = f"nothing here writes calls in the format {self.tool_parser}"
        elif self.reasoning_parser and self.reasoning_tags is None:
            reason = f"where thinking in the format {self.reasoning_parser} ends is not known to the engine"
        if reason:
            raise Unsupported(f"{param} is not supported: {reason}", param=param)

    def _check_token_ids(self, param: str, token_ids: tuple[int, ...] | dict[int, float]) -> None:
        if token_ids and max(token_ids) >= self.vocab_size:
            raise InvalidRequest(f"{param} must hold token ids below {self.vocab_size}", param=param)


def _check_vocabularies(tokenizer: TokenizerInfo, engine: EngineInfo, detokenizer: DetokenizerInfo) -> None:
    """Tokenizer and detokenizer have the same number of ids, and the engine all of them; most have some more.

    Raises ``Unavailable`` with the numbers.
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


def check_name(name: str, known: tuple[str, ...], *, param: str | None = "model") -> None:
    """Raises ``ModelNotFound`` unless a model is served under this name."""
    if name not in known:
        raise ModelNotFound(f"the model {name[:100]!r} does not exist; there is {known[0]!r}", param=param)


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
        return f"nothing here reads calls in the format {tokenizer.tool_parser}"
    return "the format of this model's calls was not recognised; name it with GATEWAY_TOOL_PARSER"


def _fingerprint(*facts: str) -> str:
    return f"fp_{hashlib.sha256(chr(0).join(facts).encode()).hexdigest()[:12]}"
