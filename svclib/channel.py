"""gRPC channel and server options: keepalive, reconnection, message size."""

from __future__ import annotations

from typing import Final

import grpc

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024

_BOTH_ENDS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Keepalive detects a peer that hangs without closing its connection within 15 seconds. Servers send it too: a hung
    # client must not keep its requests running.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Without it the timeout above has no effect, and a ping times out after a minute.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS: Final = (
    *_BOTH_ENDS,
    # With SO_REUSEPORT two processes could listen on one port and silently share its requests.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)

_CHANNEL_OPTIONS: Final = (
    *_BOTH_ENDS,
    # Reconnect to a restarted peer within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Without it channels to one address share a connection.
    ("grpc.use_local_subchannel_pool", 1),
)


def connect(address: str) -> grpc.aio.Channel:
    """A channel to ``host:port``. Connects on first use, and again after a loss."""
    return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
