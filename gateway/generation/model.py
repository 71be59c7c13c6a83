"""A served model: its properties, and the checks of a request against them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.generation.call_grammar import CallSyntax
from gateway.generation.constraint import Constraint, Thinking, build_constraint, constraining_field
from gateway.generation.prompt import Prompt, ReasoningState, ReasoningTags
from gateway.generation.request import GenerationRequest
from svclib.errors import ContextLengthExceeded, InvalidRequest, Unsupported


@dataclass(frozen=True, slots=True)
class Model:
    """A model as its services describe it. An empty parser name means no parser."""

    max_context_length: int
    vocab_size: int
    simulated: bool
    generates: bool
    tool_parser: str
    tools_unsupported_reason: str
    """Why tools are not supported; empty: they are."""
    reasoning_parser: str
    template_supports_thinking: bool
    is_reasoning_model: bool
    """According to its chat template or the operator."""
    template_variables: frozenset[str]
    reasoning_tags: ReasoningTags | None
    """None: reasoning is not parsed, or its format has no pair of tags."""
    supports_constraints: bool
    call_syntax: CallSyntax | None
    """None: tool calls can be parsed but not forced."""
    eos_token_ids: tuple[int, ...]
    """Tokens that end the output of a prompt that was not rendered by a chat template."""
    fingerprint: str
    """Changes with the weights, the dtypes and the chat template; clients see it as ``system_fingerprint``."""
    warnings: tuple[str, ...]
    """Limitations that an operator should know, as sentences."""

    def check(self, request: GenerationRequest) -> None:
        """The checks that need no prompt. Raises ``InvalidRequest`` naming the field."""
        if not self.generates:
            raise Unsupported("embedding model: text generation is not supported", param="model")
        if request.tools and self.tools_unsupported_reason:
            raise Unsupported(f"tools are not supported: {self.tools_unsupported_reason}", param="tools")
        if request.script is not None and not self.simulated:
            raise Unsupported("simulate is supported only with the simulated model", param="simulate")
        self._check_constraint(request)
        self.check_token_ids("stop_token_ids", request.sampling.stop_token_ids)
        self.check_token_ids("logit_bias", request.sampling.logit_bias)

    def check_length(self, request: GenerationRequest, prompt_tokens: int) -> None:
        """Prompt and output must fit into the context. Raises ``InvalidRequest`` with both numbers."""
        context = self.max_context_length
        if prompt_tokens >= context:
            raise ContextLengthExceeded(
                f"the prompt has {prompt_tokens} tokens; the model's context is {context} tokens, "
                "and at least one must be left for the output",
                param=request.names.prompt,
            )
        max_tokens = request.sampling.max_tokens
        if max_tokens is not None and prompt_tokens + max_tokens > context:
            name = request.names.max_tokens
            raise InvalidRequest(
                f"{name} is {max_tokens} and the prompt has {prompt_tokens} tokens: together more than the "
                f"model's context of {context}; {name} can be at most {context - prompt_tokens}",
                param=name,
            )

    def check_token_ids(self, param: str, token_ids: Iterable[int]) -> None:
        """Raises ``InvalidRequest`` for an id outside the vocabulary."""
        if max(token_ids, default=0) >= self.vocab_size:
            raise InvalidRequest(
                f"{param} holds a token id outside the vocabulary; ids must be below {self.vocab_size}", param=param
            )

    def reasoning_state(self, prompt: Prompt) -> ReasoningState:
        """Whether the output starts inside reasoning. ``CLOSED`` counts only if the template supports thinking."""
        if prompt.reasoning_state is ReasoningState.CLOSED and not self.template_supports_thinking:
            return ReasoningState.UNDECIDED
        return prompt.reasoning_state

    def constraint(self, request: GenerationRequest) -> Constraint | None:
        """The constraint on the output of a request that was checked; None: none."""
        return build_constraint(request, self.call_syntax)

    def thinking(self, prompt: Prompt) -> Thinking | None:
        """The reasoning that a constraint does not apply to; None: it applies from the first token."""
        state = self.reasoning_state(prompt)
        if self.reasoning_tags is None or state is ReasoningState.CLOSED:
            return None
        return Thinking(state, self.reasoning_tags)

    def _check_constraint(self, request: GenerationRequest) -> None:
        param = constraining_field(request)
        if not param:
            return
        reason = ""
        if not self.supports_constraints:
            reason = "the engine does not support constrained output for this model"
        elif request.tools and self.call_syntax is None:
            reason = f"tool calls in the format {self.tool_parser} can be parsed but not forced"
        elif self.reasoning_parser and self.reasoning_tags is None:
            reason = f"the end tag of the reasoning format {self.reasoning_parser} is unknown to the engine"
        if reason:
            raise Unsupported(f"{param} is not supported: {reason}", param=param)
