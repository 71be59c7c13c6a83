"""Prometheus metrics of the detokenizer."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class DetokenizerMetrics:
    """The metrics, on the caller's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.tokens = Counter("pellucid_detokenizer_tokens", "Output tokens converted to text.", registry=registry)
        self.events = Counter("pellucid_detokenizer_events", "Events sent to gateways.", registry=registry)
        self.parse_failures = Counter(
            "pellucid_detokenizer_parse_failures",
            "Malformed tool calls, which became content.",
            ["parser"],
            registry=registry,
        )
        self.finished = Counter(
            "pellucid_detokenizer_choices_finished", "Finished choices.", ["finished_reason"], registry=registry
        )
        self._running = Gauge("pellucid_detokenizer_choices_running", "Choices in flight.", registry=registry)

    def watch_running(self, count: Callable[[], float]) -> None:
        """Read the number of running choices from ``count`` at each scrape."""
        self._running.set_function(count)
