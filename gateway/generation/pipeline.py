"""One chat request from hop 2 to hop 12, in order, as a composition of async iterators: render, generate, format.

    hop 2      choose replicas                                  Balancer.choose
    hop 3, 4   messages, tools  -> prompt token ids             Pipeline._render
    hop 5-9    prompt token ids -> output token ids             Pipeline._generate
    hop 10, 11 output token ids -> content, thinking, calls     Pipeline._format
    hop 12     -> chunks of a stream or one JSON                the reader of ``Pipeline.answer``

It knows neither HTTP nor whether the answer will be a stream: a single answer is the stream, collected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from gateway.generation.constraint import fault_of
from gateway.generation.merge import Merge
from gateway.generation.model import Model, ParserChoice
from gateway.generation.output import Event, Output, Signal
from gateway.generation.peers import (
    DetokenizerInfo,
    EngineClient,
    EngineInfo,
    GenerateOptions,
    Generation,
    Prompt,
    ScriptTokens,
    TokenizerInfo,
)
from gateway.generation.record import RequestRecord
from gateway.generation.request import ChatRequest
from gateway.generation.thinking import with_thinking
from gateway.metrics import GatewayMetrics
from gateway.replicas.balancer import Balancer
from gateway.replicas.clients.detokenizer import DetokenizerClient, Formatting
from gateway.replicas.clients.tokenizer import TokenizerClient
from svclib.errors import InternalError, InvalidRequest, ServiceError, Unavailable
from svclib.session import Opening

Tokenizers: TypeAlias = Balancer[TokenizerClient, TokenizerInfo]
Engines: TypeAlias = Balancer[EngineClient, EngineInfo]
Detokenizers: TypeAlias = Balancer[DetokenizerClient, DetokenizerInfo]

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The three services behind the gateway, and how a request goes through them."""

    tokenizers: Tokenizers
    engines: Engines
    detokenizers: Detokenizers
    parsers: ParserChoice
    metrics: GatewayMetrics

    def model(self) -> Model:
        """The model that is served now. Raises ``Unavailable`` naming the services that are not ready."""
        tokenizer, engine, detokenizer = self.tokenizers.info, self.engines.info, self.detokenizers.info
        if tokenizer is None or engine is None or detokenizer is None:
            absent = [each.name for each in (self.tokenizers, self.engines, self.detokenizers) if each.info is None]
            raise Unavailable(f"not ready: {', '.join(absent)}", retry_after=1.0)
        return Model.of(tokenizer, engine, detokenizer, self.parsers)

    async def answer(
        self,
        request: ChatRequest,
        record: RequestRecord,
        *,
        until: float,
        give_up: Callable[[ServiceError], None],
        ping_seconds: float | None = None,
    ) -> AsyncGenerator[list[Event], None]:
        """What becomes of a request: batches of all that has happened since the last one, until every choice ended.

        ``until`` is the Unix time at which the peers may give it up. ``give_up`` is called when the batches are taken
        so slowly that the work has been ended: the reader may be waiting for something else. Everything that can be
        wrong with the request is found before the first batch. Raises ``ServiceError``. Closing the iterator ends the
        work in all services.
        """
        model = self.model()
        record.fingerprint = model.fingerprint
        record.expect(request.n)
        model.check(request)
        request = with_thinking(request, model)
        prompt = await self._render(request, model, record)
        model.check_length(request, len(prompt.token_ids))
        script = await self._tokenize_script(request, record)
        options = GenerateOptions(script, model.constraint(request), model.thinking(prompt))
        opening = Opening(record.request_id, timeout=max(0.0, until - time.time()))
        async with (
            self._generate(request, prompt, options, opening, record) as generation,
            self._format(request, prompt, model, options, opening, record) as formattings,
            Merge[Event](
                self._feed(generation, formattings, record),
                *(_read(index, each, generation, record) for index, each in enumerate(formattings)),
                *([] if ping_seconds is None else [_pings(ping_seconds)]),
            ) as batches,
        ):
            generation.when_too_slow(give_up)
            for formatting in formattings:
                formatting.when_too_slow(give_up)
            running = request.n
            async for batch in batches:
                yield batch
                running -= sum(isinstance(event, Output) and event.formatted.finish is not None for event in batch)
                if not running:
                    return

    async def _render(self, request: ChatRequest, model: Model, record: RequestRecord) -> Prompt:
        longest = model.max_context_length - 1
        prompt = await self._on_a_tokenizer(lambda client: client.render(request, record.request_id, longest), record)
        if prompt.ignored_kwargs and request.rejects_unknown:
            name = f"chat_template_kwargs.{prompt.ignored_kwargs[0]}"
            raise InvalidRequest(f"this model's chat template never reads {prompt.ignored_kwargs[0]}", param=name)
        record.note_prompt(prompt)
        return prompt

    async def _tokenize_script(self, request: ChatRequest, record: RequestRecord) -> ScriptTokens | None:
        script = request.script
        if script is None:
            return None
        try:
            steps = await self._on_a_tokenizer(lambda client: client.tokenize(script.steps), record)
        except InvalidRequest as error:
            # The tokenizer names its own field.
            param = (error.param or "").replace("inputs", "simulate.steps", 1)
            raise InvalidRequest(error.message.replace("inputs", "simulate.steps", 1), param=param) from None
        return ScriptTokens(steps, script.repeat, script.delay_ms, script.finish)

    async def _on_a_tokenizer(
        self, work: Callable[[TokenizerClient], Awaitable[ResultT]], record: RequestRecord
    ) -> ResultT:
        """A tokenizer holds no state, so what one that went away did not do is asked of another, once."""
        with self.tokenizers.choose() as first:
            record.replicas["tokenizer"] = first.address
            try:
                return await work(first.client)
            except Unavailable:
                pass
        with self.tokenizers.choose(avoid=first.address) as second:
            record.replicas["tokenizer"] = second.address
            return await work(second.client)

    @asynccontextmanager
    async def _generate(
        self,
        request: ChatRequest,
        prompt: Prompt,
        options: GenerateOptions,
        opening: Opening,
        record: RequestRecord,
    ) -> AsyncIterator[Generation]:
        with self.engines.choose(choices=request.n) as engine:
            record.replicas["engine"] = engine.address
            try:
                async with engine.client.generate(request, prompt, options, opening) as generation:
                    yield generation
            except InvalidRequest as error:
                if options.constraint is not None and (error.param or "").startswith(options.constraint.kind):
                    raise fault_of(error, request) from None
                error.param = _as_client_spells(error.param, request)
                raise

    @asynccontextmanager
    async def _format(
        self,
        request: ChatRequest,
        prompt: Prompt,
        model: Model,
        options: GenerateOptions,
        opening: Opening,
        record: RequestRecord,
    ) -> AsyncIterator[list[Formatting]]:
        with self.detokenizers.choose(choices=request.n) as detokenizer:
            record.replicas["detokenizer"] = detokenizer.address
            formattings = detokenizer.client.format(
                request,
                prompt,
                tool_parser=model.tool_parser if request.tools else "",
                reasoning_parser=model.reasoning_parser,
                reasoning_state=model.reasoning_state(prompt),
                calls_behind_thinking=options.constraint is not None,
                opening=opening,
            )
            async with AsyncExitStack() as stack:
                for formatting in formattings:
                    await stack.enter_async_context(formatting)
                yield formattings

    async def _feed(
        self, generation: Generation, formattings: list[Formatting], record: RequestRecord
    ) -> AsyncIterator[Event | None]:
        """Hand what the engine generates to the detokenizer, no faster than the client reads.

        What is too early waits on the session with the engine, where it is compact and bounded.
        """
        unended = set(range(len(formattings)))
        async for event in generation:
            if event.head is not None:
                record.note_head(event.head)
                yield Signal.BEGUN
            for chunk in event.chunks:
                formattings[chunk.index].send(chunk)
                if chunk.finish_reason:
                    unended.discard(chunk.index)
            if event.chunks:
                self.metrics.observe_step(record.note_chunks(event.chunks, time.time()))
            if event.stats is not None:
                record.note_stats(event.stats)
            yield None
        if any(not record.finish_reasons[index] for index in unended):
            raise InternalError


def _as_client_spells(param: str | None, request: ChatRequest) -> str | None:
    """The request's field behind a field of the engine."""
    match param:
        case "prompt":
            return "messages"
        case "max_tokens":
            return request.max_tokens_param
        case "logprobs":
            return "top_logprobs"
    return param


async def _read(
    index: int, formatting: Formatting, generation: Generation, record: RequestRecord
) -> AsyncIterator[Event]:
    """The formatted output of one choice. The engine is told when it has ended before the engine ended it."""
    async for formatted in formatting:
        if formatted.finish is not None:
            record.note_finish(index, formatted.finish)
            generation.stop_choice(index)
        yield Output(index, formatted)
    if not record.finish_reasons[index]:
        raise InternalError


async def _pings(seconds: float) -> AsyncIterator[Event]:
    while True:
        await asyncio.sleep(seconds)
        yield Signal.PING
