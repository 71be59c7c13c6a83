"""Connections to peers: how soon a lost one is noticed and sought again, and how large a message may be."""

from __future__ import annotations

from typing import Final

import grpc

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024

_BOTH_ENDS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A peer that hangs without closing its connection is noticed within 15 seconds: a service's, so that nobody waits
    # for it, and a client's, so that nobody works for it.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Without it the timeout above does not count: a ping is waited for a minute.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS: Final = (
    *_BOTH_ENDS,
    # Two processes that listen on one port would each get half of the requests without a word.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)

_CHANNEL_OPTIONS: Final = (
    *_BOTH_ENDS,
    # A restarted peer is found again within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Channels to one address must not share a connection: each stands for itself.
    ("grpc.use_local_subchannel_pool", 1),
)


def connect(address: str) -> grpc.aio.Channel:
    """A channel to ``host:port``. It connects by itself, again and again, when it is used."""
    return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
