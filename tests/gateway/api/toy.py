"""The endpoint of docs/adding-an-endpoint.md: ``POST /v1/echo`` returns its input as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from starlette.routing import BaseRoute

from gateway.api.exchange import generation_route
from gateway.api.schemas.base import Schema, validate
from gateway.gateway import Gateway
from gateway.generation.events import ContentDelta, Event, Output
from gateway.generation.record import RequestRecord
from gateway.generation.request import FieldNames, GenerationRequest, Sampling, Script, TextPrompt
from gateway.http.errors import Problem


class Echo(Schema):
    model: str
    text: Annotated[str, Field(min_length=1, max_length=1000)]
    stream: bool | None = None


@dataclass(frozen=True, slots=True)
class EchoRequest:
    generation: GenerationRequest
    is_stream: bool
    ignored: tuple[str, ...]

    def writer(self, _record: RequestRecord) -> EchoWriter:
        return EchoWriter(is_stream=self.is_stream)


class EchoWriter:
    headers = ((b"content-type", b"text/plain; charset=utf-8"),)

    def __init__(self, *, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._said: list[str] = []

    def opening(self) -> bytes:
        return b""

    def events(self, batch: Sequence[Event]) -> bytes:
        deltas = [delta for event in batch if isinstance(event, Output) for delta in event.formatted.deltas]
        self._said += [delta.text for delta in deltas if isinstance(delta, ContentDelta)]
        return self.closing() if self._is_stream else b""

    def closing(self) -> bytes:
        said, self._said = "".join(self._said), []
        return said.encode()

    def error(self, problem: Problem) -> bytes:
        return problem.message.encode()


def read_echo(document: Mapping[str, Any], *, reject_unknown: bool) -> EchoRequest:
    fields = validate(Echo, document)
    script = Script(tuple(fields.text), finish="length")
    request = GenerationRequest(
        fields.model, TextPrompt(fields.text), Sampling(), script=script, names=FieldNames(prompt="text")
    )
    return EchoRequest(request, bool(fields.stream), tuple(fields.unknown()))


def echo_routes(gateway: Gateway) -> list[BaseRoute]:
    return [generation_route("/v1/echo", gateway, read_echo)]
