"""The parts of a gateway, put together."""

from __future__ import annotations

import time

import structlog
from prometheus_client import CollectorRegistry

from gateway.config import Settings, split
from gateway.generation.pipeline import Pipeline
from gateway.http.bodies import Bodies, ReadingLimits
from gateway.http.json_body import JsonReader
from gateway.metrics import GatewayMetrics
from gateway.policy.admission import Admission
from gateway.replicas.balancer import Balancer
from gateway.replicas.clients.detokenizer import DetokenizerClient
from gateway.replicas.clients.engine import SessionEngine
from gateway.replicas.clients.tokenizer import TokenizerClient
from gateway.replicas.deployment import Deployment
from gateway.replicas.describe import ParserChoice
from gateway.replicas.loads import EngineLoadCollector
from gateway.replicas.registry import Registry
from svclib.errors import Unavailable
from svclib.session import SessionLimits

log = structlog.get_logger(__name__)


class Gateway:
    """What all requests share. Runs between ``start`` and ``stop``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.created = int(time.time())
        self.metrics = GatewayMetrics(CollectorRegistry(), settings.served_model_name)
        self.admission = Admission(settings.max_concurrent_requests)
        self.bodies = Bodies(_reading_limits(settings))
        self.reader = JsonReader()
        self.deployment = _deployment(settings)
        self.registry = Registry(dict.fromkeys(settings.model_names, self.deployment))
        self.pipeline = Pipeline(self.registry, self.metrics.observe_step)
        self._balancers = (self.deployment.tokenizers, self.deployment.engines, self.deployment.detokenizers)
        self._logged_warnings: tuple[str, ...] = ()
        self.loads = EngineLoadCollector(lambda: self.deployment.engines.ready, settings.served_model_name)
        self.metrics.registry.register(self.loads)
        self.metrics.watch_choices(lambda: self.admission.in_use)
        self.metrics.watch_peers(self.peers)

    def start(self) -> None:
        """Begin to watch the services. They need not be running yet."""
        self.loads.start()
        for balancer in self._balancers:
            balancer.start(self._on_change)

    async def stop(self) -> None:
        """Release everything; requests in flight end with an error."""
        for balancer in self._balancers:
            await balancer.stop()
        self.reader.close()

    def close(self) -> None:
        """Admit no more requests: those being read end with an error, those in flight continue."""
        self.admission.close()
        self.bodies.end_all(Unavailable("the gateway is shutting down", retry_after=1.0))

    def peers(self) -> dict[str, dict[str, bool]]:
        """Which replicas are ready, by service and address."""
        return {balancer.name: balancer.addresses for balancer in self._balancers}

    def check_ready(self) -> tuple[str, ...]:
        """Warnings for operators. Raises ``Unavailable`` unless a request would be served now."""
        self.admission.check_open()
        return self.deployment.warnings()

    def _on_change(self) -> None:
        """Log the model's warnings whenever they change."""
        self.deployment.refresh()
        try:
            warnings = self.deployment.warnings()
        except Unavailable:
            return
        if warnings != self._logged_warnings:
            self._logged_warnings = warnings
            for warning in warnings:
                log.warning("model is served with a limitation", warning=warning)


def _reading_limits(settings: Settings) -> ReadingLimits:
    return ReadingLimits(
        seconds=min(settings.body_timeout, settings.request_timeout),
        grace_seconds=settings.body_grace_seconds,
        min_bytes_per_second=settings.body_min_bytes_per_second,
        max_readers=settings.max_partial_bodies,
        max_readers_per_address=settings.max_partial_bodies_per_client,
    )


def _deployment(settings: Settings) -> Deployment:
    limits = SessionLimits(waiting=settings.max_unread_bytes)
    return Deployment(
        Balancer(
            "tokenizer",
            split(settings.tokenizer_addresses),
            lambda channel: TokenizerClient(channel, settings.tokenizer_timeout),
            TokenizerClient.info,
        ),
        Balancer(
            "engine",
            split(settings.engine_addresses),
            lambda channel: SessionEngine(channel, limits),
            lambda engine: engine.info(),
        ),
        Balancer(
            "detokenizer",
            split(settings.detokenizer_addresses),
            lambda channel: DetokenizerClient(channel, limits),
            DetokenizerClient.info,
        ),
        ParserChoice(settings.tool_parser, settings.reasoning_parser),
    )
