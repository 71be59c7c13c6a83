from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter

from gateway.generation.record import RequestRecord
from gateway.metrics import GatewayMetrics


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> GatewayMetrics:
    return GatewayMetrics(registry, "m")


def series(registry: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in registry.collect())


def test_metrics_of_a_chat(registry: CollectorRegistry, metrics: GatewayMetrics) -> None:
    record = RequestRecord("r", request_received_at=10.0, model_name="m", first_chunk_at=10.2, finished_at=11.0)
    record.ignored = ("a", "messages[0].b", "messages[1].b")
    metrics.observe_request(record, "/v1/chat/completions", 200)
    metrics.observe_step(None)
    metrics.observe_step(0.02)
    labels = {"model_name": "m"}
    assert registry.get_sample_value("vllm:time_to_first_token_seconds_sum", labels) == pytest.approx(0.2)
    assert registry.get_sample_value("vllm:e2e_request_latency_seconds_sum", labels) == pytest.approx(1.0)
    assert registry.get_sample_value("vllm:inter_token_latency_seconds_count", labels) == 1
    assert registry.get_sample_value("pellucid_ignored_fields_total", {"level": "top"}) == 1
    assert registry.get_sample_value("pellucid_ignored_fields_total", {"level": "nested"}) == 2
    requests = {"route": "/v1/chat/completions", "status": "200", "code": "", "model_name": "m"}
    assert registry.get_sample_value("pellucid_http_requests_total", requests) == 1


def test_ignored_fields_are_counted_in_one_increment(
    registry: CollectorRegistry, metrics: GatewayMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    increments: list[float] = []
    monkeypatch.setattr(Counter, "inc", lambda _, amount=1.0: increments.append(amount))
    names = tuple(f"field{number}" for number in range(1000)) + ("messages[0].a",) * 500
    metrics.observe_request(RequestRecord("r", ignored=names), "unmatched", 400)
    assert sorted(increments) == [1, 500, 1000]


def test_a_request_without_output_has_no_latencies(registry: CollectorRegistry, metrics: GatewayMetrics) -> None:
    metrics.observe_request(RequestRecord("r", model_name="m", error_code="overloaded"), "/v1/chat/completions", 503)
    assert registry.get_sample_value("vllm:time_to_first_token_seconds_count", {"model_name": "m"}) == 0
    assert registry.get_sample_value("vllm:e2e_request_latency_seconds_count", {"model_name": "m"}) == 0


def test_labels_are_bounded(registry: CollectorRegistry, metrics: GatewayMetrics) -> None:
    metrics.observe_request(RequestRecord("r", model_name="x"), "unmatched", 404)
    before = series(registry)
    for number in range(100):
        record = RequestRecord(f"r{number}", model_name=f"model-{number}", ignored=(f"field-{number}",))
        metrics.observe_request(record, "unmatched", 404)
    assert series(registry) - before <= 2
    others = {"route": "unmatched", "status": "404", "code": "", "model_name": "other"}
    assert registry.get_sample_value("pellucid_http_requests_total", others) == 101


def test_peers_are_read_at_each_scrape(registry: CollectorRegistry, metrics: GatewayMetrics) -> None:
    peers = {"engine": {"a:1": True, "b:1": False}}
    metrics.watch_peers(lambda: peers)
    sample = lambda address: registry.get_sample_value("pellucid_peer_ready", {"service": "engine", "address": address})
    assert (sample("a:1"), sample("b:1")) == (1, 0)
    peers["engine"]["b:1"] = True
    assert sample("b:1") == 1
