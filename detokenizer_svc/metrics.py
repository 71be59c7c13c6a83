"""What the detokenizer counts."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class DetokenizerMetrics:
    """Its metrics, on a registry of the caller's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.tokens = Counter("pellucid_detokenizer_tokens", "Output tokens turned into text.", registry=registry)
        self.events = Counter("pellucid_detokenizer_events", "Events sent.", registry=registry)
        self.parse_failures = Counter(
            "pellucid_detokenizer_parse_failures",
            "Pieces of output that looked like a tool call, were none, and became content.",
            ["parser"],
            registry=registry,
        )
        self.finished = Counter(
            "pellucid_detokenizer_choices_finished", "Choices that ended.", ["finished_reason"], registry=registry
        )
        self._running = Gauge("pellucid_detokenizer_choices_running", "Choices being formatted.", registry=registry)

    def watch_running(self, count: Callable[[], float]) -> None:
        """Read the number of running choices from ``count`` at each scrape."""
        self._running.set_function(count)
