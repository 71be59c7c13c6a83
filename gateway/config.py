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
        raise ValueError("at least one host:port is required")
    for address in split(value):
        if not _ADDRESS.fullmatch(address):
            raise ValueError(f"{address!r} must be host:port")
    return value


Addresses = Annotated[str, AfterValidator(_addresses)]


class Settings(ServiceSettings):
    """The gateway's settings."""

    model_config = SettingsConfigDict(env_prefix="GATEWAY_")

    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0: any free port")
    metrics_port: int = Field(
        default=0, ge=0, le=65535, description="additional port that serves only /metrics; 0: none"
    )

    tokenizer_addresses: Addresses = Field(default="127.0.0.1:50051", description="tokenizer replicas: host:port, ...")
    engine_addresses: Addresses = Field(default="127.0.0.1:50052", description="engine replicas: host:port, ...")
    detokenizer_addresses: Addresses = Field(
        default="127.0.0.1:50053", description="detokenizer replicas: host:port, ..."
    )

    served_model_name: str = Field(min_length=1, max_length=256, description="model name in requests and responses")
    model_aliases: str = Field(default="", description="additional names of the model, comma-separated")
    tool_parser: str = Field(
        default="auto", description="tool-call parser: a name, `none`, or `auto` (detected from the chat template)"
    )
    reasoning_parser: str = Field(
        default="auto", description="reasoning parser: a name, `none`, or `auto` (detected from the chat template)"
    )

    unknown_fields: Literal["ignore", "reject"] = Field(
        default="ignore", description="ignore or reject unknown request fields"
    )
    max_concurrent_requests: int = Field(
        default=1024, ge=1, description="maximum number of choices in flight; beyond it 503"
    )
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1, description="maximum body size, bytes; beyond it 413")
    max_connections: int = Field(
        default=8192, ge=1, description="maximum number of open connections; beyond it the longest idle one is closed"
    )
    max_partial_bodies: int = Field(
        default=4096, ge=1, description="maximum number of request bodies being read; beyond it the oldest gets a 408"
    )
    max_partial_bodies_per_client: int = Field(default=2048, ge=1, description="the same limit for each client address")
    body_timeout: float = Field(default=120.0, gt=0, le=3600, description="time limit for receiving a body, seconds")
    body_grace_seconds: float = Field(
        default=10.0, gt=0, le=3600, description="interval over which the rate of a body is measured, seconds"
    )
    body_min_bytes_per_second: int = Field(default=1024, ge=0, description="minimum rate of a body; 0: no minimum")
    write_timeout: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="time after which a client that reads nothing of its answer is disconnected, seconds",
    )
    keep_alive_timeout: float = Field(
        default=120.0, gt=0, le=86400, description="time after which an idle connection is closed, seconds"
    )
    max_unread_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=64 * 1024,
        le=64 * 1024 * 1024,
        description="maximum unread output of one request, bytes; beyond it the request is aborted",
    )
    request_timeout: float = Field(default=600.0, gt=0, le=86400, description="time limit of a request, seconds")
    tokenizer_timeout: float = Field(default=30.0, gt=0, le=3600, description="time limit of a tokenizer call, seconds")
    sse_ping_seconds: float = Field(
        default=15.0, gt=0, le=3600, description="interval of the SSE comments that keep a stream alive, seconds"
    )

    @property
    def model_names(self) -> tuple[str, ...]:
        """All names of the model, ``served_model_name`` first."""
        return tuple(dict.fromkeys((self.served_model_name, *split(self.model_aliases))))
