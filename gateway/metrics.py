"""The gateway's metrics. A metric that vLLM has is exported under its name, with its type, unit and labels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.generation.record import RequestRecord

_FIRST_TOKEN_SECONDS: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
                               10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_STEP_SECONDS: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
                        40.0, 80.0)  # fmt: skip
_REQUEST_SECONDS: Final = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
                           240.0, 480.0, 960.0, 1920.0, 7680.0)  # fmt: skip


class GatewayMetrics:
    """Written by requests, exported from ``registry``. No label has a value that a client can choose freely."""

    def __init__(self, registry: CollectorRegistry, model_name: str) -> None:
        self.registry = registry
        self._model_name = model_name
        self._first_token = self._histogram(
            "vllm:time_to_first_token_seconds",
            "Time from arrival to the first token.",
            _FIRST_TOKEN_SECONDS,
        )
        self._step = _StepHistogram(
            "vllm:inter_token_latency_seconds",
            "Time between two outputs of the engine for a request.",
            model_name,
            _STEP_SECONDS,
        )
        registry.register(self._step)
        self._request = self._histogram(
            "vllm:e2e_request_latency_seconds", "Time from arrival to the end of the request.", _REQUEST_SECONDS
        )
        self._requests = Counter(
            "pellucid_http_requests",
            "Finished HTTP requests. `code` is that of the error body or error event; `model_name` is `other` for "
            "names that are not served.",
            ["route", "status", "code", "model_name"],
            registry=registry,
        )
        self._ignored = Counter(
            "pellucid_ignored_fields",
            "Ignored unknown request fields, at the top level or nested.",
            ["level"],
            registry=registry,
        )

    def watch_choices(self, count: Callable[[], float]) -> None:
        """Export the number of choices in flight, read from ``count`` at each scrape."""
        gauge = Gauge("pellucid_gateway_choices_running", "Choices in flight.", registry=self.registry)
        gauge.set_function(count)

    def watch_peers(self, peers: Callable[[], Mapping[str, Mapping[str, bool]]]) -> None:
        """Export which replicas are ready, by service and address, read at each scrape."""
        self.registry.register(_PeerCollector(peers))

    def observe_step(self, seconds: float | None) -> None:
        """The time between two outputs; None: the first output."""
        if seconds is not None:
            self._step.observe(seconds)

    def observe_request(self, record: RequestRecord, route: str, status: int) -> None:
        """Count a finished request. ``route`` is the template of its path."""
        model_name = record.model_name if record.model_name in {"", self._model_name} else "other"
        self._requests.labels(route, str(status), record.error_code, model_name).inc()
        # Summed first: one request may have 250,000 unknown fields, and this runs on the event loop.
        nested = sum("." in name for name in record.ignored)
        self._ignored.labels("nested").inc(nested)
        self._ignored.labels("top").inc(len(record.ignored) - nested)
        if record.first_chunk_at:
            self._first_token.observe(max(0.0, record.first_chunk_at - record.request_received_at))
            self._request.observe(max(0.0, record.finished_at - record.request_received_at))

    def _histogram(self, name: str, documentation: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, documentation, ["model_name"], registry=self.registry, buckets=buckets).labels(
            self._model_name
        )


class _StepHistogram(Collector):
    """A histogram for one writing thread, in a fifth of the library's time: it is written for every token."""

    def __init__(self, name: str, documentation: str, model_name: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._documentation = documentation
        self._model_name = model_name
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def collect(self) -> list[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=["model_name"])
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(names, map(float, accumulate(self._counts)), strict=True))
        family.add_metric([self._model_name], buckets, self._sum)
        return [family]


class _PeerCollector(Collector):
    def __init__(self, peers: Callable[[], Mapping[str, Mapping[str, bool]]]) -> None:
        self._peers = peers

    def collect(self) -> list[GaugeMetricFamily]:
        family = GaugeMetricFamily("pellucid_peer_ready", "Whether a replica is ready.", labels=["service", "address"])
        for service, addresses in self._peers().items():
            for address, is_ready in addresses.items():
                family.add_metric([service, address], float(is_ready))
        return [family]
