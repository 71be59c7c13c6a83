"""One request from hop 2 to hop 12, in order, for any endpoint: render, generate, format.

    hop 2      choose a model, and replicas that agree on it     Models.find, Replicas.choose
    hop 3, 4   prompt, tools    -> prompt token ids              PromptBuilder.build
    hop 5-9    prompt token ids -> output token ids              Attempt
    hop 10, 11 output token ids -> content, reasoning, calls     Attempt
    hop 12     -> chunks of a stream or one JSON                 the reader of ``Pipeline.answer``

It knows neither HTTP nor whether the answer is streamed: a single answer is the stream, collected.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from gateway.generation.attempt import Attempt
from gateway.generation.events import Event
from gateway.generation.plan import build_plan
from gateway.generation.prompt_builder import PromptBuilder
from gateway.generation.reasoning import apply_thinking_options
from gateway.generation.record import RequestRecord
from gateway.generation.request import GenerationRequest
from gateway.generation.services import Models
from svclib.errors import ServiceError
from svclib.session import Opening


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The path of a request through the three services. ``observe_step``: see ``Attempt``."""

    models: Models
    observe_step: Callable[[float | None], None]

    async def answer(
        self,
        request: GenerationRequest,
        record: RequestRecord,
        *,
        until: float,
        abort: Callable[[ServiceError], None],
        ping_seconds: float | None = None,
    ) -> AsyncGenerator[list[Event], None]:
        """The events of a request, in batches of all since the last one, until every choice has ended.

        ``until`` is the deadline, in Unix seconds. ``abort`` is called when batches are read so slowly that a service
        has ended the request: the reader may be waiting for something else. Every fault of the request is raised before
        the first batch. Raises ``ServiceError``. Closing the iterator cancels the request on all services.
        """
        served = self.models.find(request.model)
        record.begin(request.n, served.model.fingerprint)
        served.model.check(request)
        request = apply_thinking_options(request, served.model)
        prompt = await PromptBuilder(served, record).build(request)
        served.model.check_length(request, len(prompt.token_ids))
        opening = Opening(record.request_id, max(0.0, until - time.time()), record.traceparent)
        plan = build_plan(request, prompt, served.model, opening)
        with Attempt(served, plan, record, self.observe_step) as attempt:
            async with aclosing(attempt.batches(abort, ping_seconds)) as batches:
                async for batch in batches:
                    yield batch
