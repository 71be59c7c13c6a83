"""``python -m svclib.healthcheck HOST:PORT``: exits with 0 if that service is SERVING, else 1. For containers."""

from __future__ import annotations

import sys
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_TIMEOUT_SECONDS: Final = 3.0


def is_serving(address: str) -> bool:
    """Whether ``grpc.health.v1`` at ``host:port`` reports SERVING; False if there is no answer in time."""
    with grpc.insecure_channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_SECONDS
            )
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    sys.exit(0 if is_serving(sys.argv[1]) else 1)
