"""One request from hop 2 to hop 12, in order, whatever endpoint it came by: render, generate, format.

    hop 2      choose a model, and replicas that agree on it     Models.find, Replicas.choose
    hop 3, 4   prompt, tools    -> prompt token ids              Prompting.prompt
    hop 5-9    prompt token ids -> output token ids              Attempt
    hop 10, 11 output token ids -> content, thinking, calls      Attempt
    hop 12     -> chunks of a stream or one JSON                 the reader of ``Pipeline.answer``

It knows neither HTTP nor whether the answer will be a stream: a single answer is the stream, collected.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from gateway.generation.attempt import Attempt
from gateway.generation.events import Event
from gateway.generation.plan import plan_of
from gateway.generation.prompting import Prompting
from gateway.generation.reasoning import with_thinking
from gateway.generation.record import RequestRecord
from gateway.generation.request import GenerationRequest
from gateway.generation.services import Models
from svclib.errors import ServiceError
from svclib.session import Opening


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How a request goes through the three services. ``observe_step``: see ``Attempt``."""

    models: Models
    observe_step: Callable[[float | None], None]

    async def answer(
        self,
        request: GenerationRequest,
        record: RequestRecord,
        *,
        until: float,
        give_up: Callable[[ServiceError], None],
        ping_seconds: float | None = None,
    ) -> AsyncGenerator[list[Event], None]:
        """What becomes of a request: batches of all that has happened since the last one, until every choice ended.

        ``until`` is the Unix time at which the services may give it up. ``give_up`` is called when batches are taken
        so slowly that the work has been ended: the reader may be waiting for something else. Everything that can be
        wrong with the request is found before the first batch. Raises ``ServiceError``. Closing the iterator ends the
        work in all services.
        """
        served = self.models.find(request.model)
        record.expect(request.n, served.model.fingerprint)
        served.model.check(request)
        request = with_thinking(request, served.model)
        prompt = await Prompting(served, record).prompt(request)
        served.model.check_length(request, len(prompt.token_ids))
        opening = Opening(record.request_id, max(0.0, until - time.time()), record.traceparent)
        plan = plan_of(request, prompt, served.model, opening)
        with Attempt(served, plan, record, self.observe_step) as attempt:
            async with aclosing(attempt.batches(give_up, ping_seconds)) as batches:
                async for batch in batches:
                    yield batch
