"""Hops 3 and 4: a conversation, a text or token ids become a prompt of token ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gateway.generation.prompt import Prompt, ReasoningState
from gateway.generation.record import RequestRecord
from gateway.generation.request import Conversation, GenerationRequest, TextPrompt
from gateway.generation.services import ServedModel, TokenizerClient
from svclib.errors import InvalidRequest, Unavailable

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class PromptBuilder:
    """Builds the prompt of one request."""

    served: ServedModel
    record: RequestRecord

    async def build(self, request: GenerationRequest) -> Prompt:
        """The token ids of the prompt and of a script. Raises ``InvalidRequest`` naming the client's field."""
        source = request.prompt
        if isinstance(source, Conversation):
            prompt = await self._render(source, request)
        elif isinstance(source, TextPrompt):
            token_ids = await self._tokenize(source.text, request.names.prompt)
            prompt = await self._with_script(self._plain(token_ids), request)
        else:
            self.served.model.check_token_ids(request.names.prompt, source.token_ids)
            prompt = await self._with_script(self._plain(source.token_ids), request)
        self.record.note_prompt(prompt)
        return prompt

    async def _render(self, conversation: Conversation, request: GenerationRequest) -> Prompt:
        longest = self.served.model.max_context_length - 1
        steps = () if request.script is None else request.script.steps
        try:
            prompt = await self._with_retry(
                lambda client: client.render(conversation, request.tools, steps, self.record.request_id, longest)
            )
        except InvalidRequest as error:
            raise _renamed(error, request.names.script) from None
        if prompt.ignored_kwargs and conversation.rejects_unread_kwargs:
            name = f"chat_template_kwargs.{prompt.ignored_kwargs[0]}"
            raise InvalidRequest(f"{name} is not a variable of this model's chat template", param=name)
        return prompt

    def _plain(self, token_ids: Sequence[int]) -> Prompt:
        """A prompt without a chat template: its output has neither reasoning nor tool calls."""
        return Prompt(token_ids, self.served.model.eos_token_ids, ReasoningState.CLOSED)

    async def _tokenize(self, text: str, name: str) -> Sequence[int]:
        try:
            return await self._with_retry(lambda client: client.tokenize(text))
        except InvalidRequest as error:
            raise _renamed(error, name) from None

    async def _with_script(self, prompt: Prompt, request: GenerationRequest) -> Prompt:
        script = request.script
        if script is None:
            return prompt
        try:
            steps = await self._with_retry(lambda client: client.tokenize_script(script.steps))
        except InvalidRequest as error:
            raise _renamed(error, request.names.script) from None
        return replace(prompt, script=steps)

    async def _with_retry(self, work: Callable[[TokenizerClient], Awaitable[ResultT]]) -> ResultT:
        """Tokenizers hold no state: when a replica is lost, the call is retried once on another."""
        with self.served.tokenizers.choose() as first:
            self.record.replicas["tokenizer"] = first.address
            try:
                return await work(first.client)
            except Unavailable:
                pass
        with self.served.tokenizers.choose(avoid={first.address}) as second:
            self.record.replicas["tokenizer"] = second.address
            return await work(second.client)


def _renamed(error: InvalidRequest, name: str) -> InvalidRequest:
    """The tokenizer's error about ``inputs``, which the client calls ``name``."""
    param = error.param or ""
    if not param.startswith("inputs"):
        return error
    return type(error)(error.message.replace("inputs", name, 1), param=param.replace("inputs", name, 1))
