"""The Prometheus endpoint of a process."""

from __future__ import annotations

from dataclasses import dataclass
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """A running endpoint, on its own thread so that it answers while the event loop is busy."""

    server: WSGIServer

    @property
    def port(self) -> int:
        return self.server.server_port

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> MetricsEndpoint:
    """Serve a registry as ``GET /metrics``. Port 0 picks a free one. Raises ``OSError`` if the port is in use."""
    server, _thread = start_http_server(port, addr=host, registry=registry)
    return MetricsEndpoint(server)
