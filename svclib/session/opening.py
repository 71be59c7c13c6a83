"""Metadata of a request: id, deadline, trace context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from protos.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class Opening:
    """Metadata sent with a request when it is opened. ``timeout`` is in seconds from now; None: no deadline."""

    request_id: str
    timeout: float | None = None
    traceparent: str = ""

    def to_wire(self) -> common_pb2.Opening:
        return common_pb2.Opening(
            request_id=self.request_id, timeout_seconds=self.timeout, traceparent=self.traceparent
        )

    @classmethod
    def from_wire(cls, message: common_pb2.Opening) -> Self:
        timeout = message.timeout_seconds if message.HasField("timeout_seconds") else None
        return cls(message.request_id, timeout, message.traceparent)
