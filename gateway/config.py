"""Settings of the gateway: ``GATEWAY_*``, or the same names as flags."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from svclib.config import ServiceSettings

_ADDRESS: Final = re.compile(r"[^\s,]+:\d{1,5}")


def split(names: str) -> tuple[str, ...]:
    """The parts of a comma list."""
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _addresses(value: str) -> str:
    if not split(value):
        raise ValueError("at least one address is needed")
    for address in split(value):
        if not _ADDRESS.fullmatch(address):
            raise ValueError(f"{address!r} is not host:port")
    return value


Addresses = Annotated[str, AfterValidator(_addresses)]


class Settings(ServiceSettings):
    """What the gateway is told at start."""

    model_config = SettingsConfigDict(env_prefix="GATEWAY_")

    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    metrics_port: int = Field(
        default=0, ge=0, le=65535, description="a further port for /metrics alone; 0 serves it on the main port only"
    )

    tokenizer_addresses: Addresses = Field(default="127.0.0.1:50051", description="host:port of each tokenizer")
    engine_addresses: Addresses = Field(default="127.0.0.1:50052", description="host:port of each engine")
    detokenizer_addresses: Addresses = Field(default="127.0.0.1:50053", description="host:port of each detokenizer")

    served_model_name: str = Field(min_length=1, max_length=256, description="name of the model for clients")
    model_aliases: str = Field(default="", description="comma list of further names of the same model")
    tool_parser: str = Field(
        default="auto", description="format of tool calls: a name, `none`, or `auto`: found from the chat template"
    )
    reasoning_parser: str = Field(
        default="auto", description="format of thinking: a name, `none`, or `auto`: found from the chat template"
    )

    unknown_fields: Literal["ignore", "reject"] = Field(
        default="ignore", description="what to do with unknown request fields"
    )
    max_concurrent_requests: int = Field(default=1024, ge=1, description="maximum number of choices in flight")
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1, description="largest request body")
    max_connections: int = Field(
        default=8192, ge=1, description="open connections; beyond it the one that is idle for longest is closed"
    )
    max_partial_bodies: int = Field(
        default=4096, ge=1, description="bodies being read at a time; beyond it the oldest gets a 408"
    )
    max_partial_bodies_per_client: int = Field(default=2048, ge=1, description="the same for each client address")
    body_timeout: float = Field(default=120.0, gt=0, le=3600, description="longest time for a body to come, seconds")
    body_grace_seconds: float = Field(
        default=10.0, gt=0, le=3600, description="time over which the rate of a body is measured, again and again"
    )
    body_min_bytes_per_second: int = Field(default=1024, ge=0, description="least rate of a body; 0: any")
    write_timeout: float = Field(
        default=30.0, gt=0, le=3600, description="longest time for a client to read nothing of its answer, seconds"
    )
    keep_alive_timeout: float = Field(
        default=120.0, gt=0, le=86400, description="longest time for a connection without a request, seconds"
    )
    max_unread_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=64 * 1024,
        le=64 * 1024 * 1024,
        description="output of one request that may wait for a client that reads slowly; beyond it the request ends",
    )
    request_timeout: float = Field(default=600.0, gt=0, le=86400, description="longest time for a request, seconds")
    tokenizer_timeout: float = Field(default=30.0, gt=0, le=3600, description="longest time for rendering, seconds")
    sse_ping_seconds: float = Field(
        default=15.0, gt=0, le=3600, description="time between the comments that keep a stream's connection alive"
    )

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every name of the model, the main one first."""
        return tuple(dict.fromkeys((self.served_model_name, *split(self.model_aliases))))
