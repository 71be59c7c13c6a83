"""A served model: what is known of it, and what that means for a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.generation.call_grammar import CallSyntax
from gateway.generation.constraint import Constraint, Thinking, asked_by, constraint_of
from gateway.generation.prompt import Prompt, ReasoningState, ReasoningTags
from gateway.generation.request import GenerationRequest
from svclib.errors import ContextLengthExceeded, InvalidRequest, Unsupported


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
    eos_token_ids: tuple[int, ...]
    """Tokens that end the output of a prompt that no template has rendered."""
    fingerprint: str
    """Changes with the weights, their element type and the template; see ``system_fingerprint``."""
    warnings: tuple[str, ...]
    """What an operator should know, as sentences."""

    def check(self, request: GenerationRequest) -> None:
        """What can be said before the prompt is known. Raises ``InvalidRequest`` naming the field."""
        if not self.generates:
            raise Unsupported("embedding model: generating text is not supported", param="model")
        if request.tools and self.no_tools_because:
            raise Unsupported(f"tools are not supported: {self.no_tools_because}", param="tools")
        if request.script is not None and not self.simulated:
            raise Unsupported("simulate needs the simulated model", param="simulate")
        self._check_constraint(request)
        self.check_token_ids("stop_token_ids", request.sampling.stop_token_ids)
        self.check_token_ids("logit_bias", request.sampling.logit_bias)

    def check_length(self, request: GenerationRequest, prompt_tokens: int) -> None:
        """Whether prompt and answer fit into the context. Raises ``InvalidRequest`` with both numbers."""
        context = self.max_context_length
        if prompt_tokens >= context:
            raise ContextLengthExceeded(
                f"the prompt has {prompt_tokens} tokens and the model's context {context}, "
                "of which at least one must be left for the answer",
                param=request.names.prompt,
            )
        max_tokens = request.sampling.max_tokens
        if max_tokens is not None and prompt_tokens + max_tokens > context:
            name = request.names.max_tokens
            raise InvalidRequest(
                f"{name} is {max_tokens} and the prompt has {prompt_tokens} tokens, together more than the "
                f"model's context of {context}; at most {context - prompt_tokens} can be generated",
                param=name,
            )

    def check_token_ids(self, param: str, token_ids: Iterable[int]) -> None:
        """Raises ``InvalidRequest`` for an id that the model does not know."""
        if max(token_ids, default=0) >= self.vocab_size:
            raise InvalidRequest(f"{param} must hold token ids below {self.vocab_size}", param=param)

    def reasoning_state(self, prompt: Prompt) -> ReasoningState:
        """Where the answer starts. A template that knows no thinking cannot close it: the answer itself tells."""
        if prompt.reasoning_state is ReasoningState.CLOSED and not self.knows_thinking:
            return ReasoningState.UNDECIDED
        return prompt.reasoning_state

    def constraint(self, request: GenerationRequest) -> Constraint | None:
        """What the output must match, of a request that was checked; None: anything will do."""
        return constraint_of(request, self.call_syntax)

    def thinking(self, prompt: Prompt) -> Thinking | None:
        """What a constraint leaves free; None: nothing."""
        state = self.reasoning_state(prompt)
        if self.reasoning_tags is None or state is ReasoningState.CLOSED:
            return None
        return Thinking(state, self.reasoning_tags)

    def _check_constraint(self, request: GenerationRequest) -> None:
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
