"""Hops 3 and 4: whatever an endpoint brought as a prompt becomes token ids."""

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
class Prompting:
    """Makes the prompt of one request."""

    served: ServedModel
    record: RequestRecord

    async def prompt(self, request: GenerationRequest) -> Prompt:
        """The tokens of the prompt and of a script. Raises ``InvalidRequest`` naming the client's field."""
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
            prompt = await self._on_a_tokenizer(
                lambda client: client.render(conversation, request.tools, steps, self.record.request_id, longest)
            )
        except InvalidRequest as error:
            raise _spelled(error, request.names.script) from None
        if prompt.ignored_kwargs and conversation.rejects_unread_kwargs:
            name = f"chat_template_kwargs.{prompt.ignored_kwargs[0]}"
            raise InvalidRequest(f"this model's chat template never reads {prompt.ignored_kwargs[0]}", param=name)
        return prompt

    def _plain(self, token_ids: Sequence[int]) -> Prompt:
        """A prompt that no template has rendered: its output has neither thinking nor calls."""
        return Prompt(token_ids, self.served.model.eos_token_ids, ReasoningState.CLOSED)

    async def _tokenize(self, text: str, name: str) -> Sequence[int]:
        try:
            return await self._on_a_tokenizer(lambda client: client.tokenize(text))
        except InvalidRequest as error:
            raise _spelled(error, name) from None

    async def _with_script(self, prompt: Prompt, request: GenerationRequest) -> Prompt:
        script = request.script
        if script is None:
            return prompt
        try:
            steps = await self._on_a_tokenizer(lambda client: client.tokenize_script(script.steps))
        except InvalidRequest as error:
            raise _spelled(error, request.names.script) from None
        return replace(prompt, script=steps)

    async def _on_a_tokenizer(self, work: Callable[[TokenizerClient], Awaitable[ResultT]]) -> ResultT:
        """A tokenizer holds no state, so what one that went away did not do is asked of another, once."""
        with self.served.tokenizers.choose() as first:
            self.record.replicas["tokenizer"] = first.address
            try:
                return await work(first.client)
            except Unavailable:
                pass
        with self.served.tokenizers.choose(avoid={first.address}) as second:
            self.record.replicas["tokenizer"] = second.address
            return await work(second.client)


def _spelled(error: InvalidRequest, name: str) -> InvalidRequest:
    """The tokenizer's error; its field ``inputs`` is called ``name`` by the client."""
    param = error.param or ""
    if not param.startswith("inputs"):
        return error
    return type(error)(error.message.replace("inputs", name, 1), param=param.replace("inputs", name, 1))
