from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from engine_svc.metrics import EngineMetrics
from engine_svc.output import Loads
from engine_svc.scheduling.speculation import Speculation
from tests.engine_svc import given
from tests.engine_svc.given import Running
from tests.engine_svc.paged_model import PagedModel


def exported() -> dict[str, str]:
    """Type of each metric family that a scrape of a fresh engine finds."""
    registry = CollectorRegistry()
    metrics = EngineMetrics(registry, "m")
    metrics.watch_loads(lambda: Loads(1, 2, 3), 4)
    metrics.describe_cache(block_size=16, num_blocks=4, enable_prefix_caching=True, cache_dtype="float32")
    return {family.name: family.type for family in text_string_to_metric_families(generate_latest(registry).decode())}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vllm:num_requests_running", "gauge"),
        ("vllm:num_requests_waiting", "gauge"),
        ("vllm:kv_cache_usage_perc", "gauge"),
        ("vllm:prefix_cache_queries", "counter"),
        ("vllm:prefix_cache_hits", "counter"),
        ("vllm:num_preemptions", "counter"),
        ("vllm:prompt_tokens", "counter"),
        ("vllm:generation_tokens", "counter"),
        ("vllm:request_success", "counter"),
        ("vllm:spec_decode_num_drafts", "counter"),
        ("vllm:spec_decode_num_draft_tokens", "counter"),
        ("vllm:spec_decode_num_accepted_tokens", "counter"),
        ("vllm:request_queue_time_seconds", "histogram"),
        ("vllm:request_prefill_time_seconds", "histogram"),
        ("vllm:request_decode_time_seconds", "histogram"),
        ("vllm:iteration_tokens_total", "histogram"),
        ("vllm:cache_config_info", "gauge"),
    ],
)
def test_names_and_types_that_dashboards_know(name: str, kind: str) -> None:
    assert exported()[name] == kind


def test_counters_are_exposed_with_the_suffix_that_scrapers_expect() -> None:
    registry = CollectorRegistry()
    EngineMetrics(registry, "m")
    text = generate_latest(registry).decode()
    assert 'vllm:prompt_tokens_total{model_name="m"} 0.0' in text
    assert 'vllm:iteration_tokens_total_bucket{le="1.0",model_name="m"} 0.0' in text
    for reason in ("stop", "length", "abort", "error"):
        assert f'vllm:request_success_total{{finished_reason="{reason}",model_name="m"}} 0.0' in text


def test_everything_else_is_ours_by_name() -> None:
    assert all(name.startswith(("vllm:", "pellucid_engine_")) for name in exported())


def test_loads_are_read_at_each_scrape() -> None:
    registry, loads = CollectorRegistry(), [Loads(0, 0, 8), Loads(3, 5, 2)]
    EngineMetrics(registry, "m").watch_loads(lambda: loads[-1], 8)
    labels = {"model_name": "m"}
    assert registry.get_sample_value("vllm:num_requests_running", labels) == 3
    assert registry.get_sample_value("vllm:num_requests_waiting", labels) == 5
    assert registry.get_sample_value("vllm:kv_cache_usage_perc", labels) == 0.75
    loads.pop()
    assert registry.get_sample_value("vllm:kv_cache_usage_perc", labels) == 0.0


def test_a_model_without_blocks_has_no_cache_to_fill() -> None:
    registry = CollectorRegistry()
    EngineMetrics(registry, "m").watch_loads(lambda: Loads(3, 5, 0), 0)
    labels = {"model_name": "m"}
    assert registry.get_sample_value("vllm:num_requests_waiting", labels) == 5
    assert registry.get_sample_value("vllm:kv_cache_usage_perc", labels) is None


def test_queries_and_hits_count_each_prompt_once() -> None:
    """Random prompts in a tiny pool, many preemptions: no hits, and exactly the prompts' tokens as queries."""
    running = Running(PagedModel(12, 4), given.scheduler(12, 4, chunk=8))
    prompts = [[number, *range(number % 9)] for number in range(20, 40)]
    for prompt in prompts:
        running.add(given.request(prompt, 20))
    running.run()
    assert running.sample("vllm:num_preemptions_total") > 5
    assert running.sample("vllm:prefix_cache_hits_total") == 0
    assert running.sample("vllm:prefix_cache_queries_total") == sum(map(len, prompts))
    assert running.sample("vllm:prompt_tokens_total") == sum(map(len, prompts))
    assert running.sample("vllm:generation_tokens_total") == 20 * 20


@pytest.mark.parametrize("caching", [True, False])
def test_choices_count_their_prompt_once(caching: bool) -> None:
    running = Running(PagedModel(64, 4), given.scheduler(64, 4, caching=caching))
    running.add(given.request(10, 5, n=4))
    running.run()
    assert running.sample("vllm:prompt_tokens_total") == 10
    assert running.sample("vllm:prefix_cache_queries_total") == 10
    assert running.sample("vllm:prefix_cache_hits_total") == 0
    assert running.sample("vllm:generation_tokens_total") == 20
    assert running.sample("vllm:request_success_total", finished_reason="length") == 4
    running.add(given.request(10, 5))
    running.run()
    assert running.sample("vllm:prefix_cache_hits_total") == (8 if caching else 0)


def test_drafts_are_counted_and_the_tokens_are_those_of_the_answer() -> None:
    model = PagedModel(64, 4, num_ids=2)
    running = Running(model, given.scheduler(64, 4, speculation=Speculation(4, 32)))
    number = running.add(given.request(10, 100))
    steps = running.run()
    drafts, drafted, accepted = (
        running.sample(f"vllm:spec_decode_num_{kind}_total") for kind in ("drafts", "draft_tokens", "accepted_tokens")
    )
    assert 0 < accepted < drafted <= 4 * drafts
    assert drafts <= steps
    assert steps + accepted == running.sample("vllm:generation_tokens_total") == 100
    assert running.sample("vllm:iteration_tokens_total_sum") == model.num_computed == 10 + steps - 1 + drafted
    assert [len(tokens) for tokens in running.answers[number].token_ids.values()] == [100]


def test_every_step_is_measured() -> None:
    running = Running(PagedModel(64, 4), given.scheduler(64, 4, chunk=4))
    running.add(given.request(10, 3))
    steps = running.run()
    assert steps == 5
    assert running.sample("vllm:iteration_tokens_total_count") == steps
    assert running.sample("vllm:iteration_tokens_total_sum") == 10 + 2
    assert running.sample("pellucid_engine_step_seconds_count") == steps
    for phase in ("queue", "prefill", "decode"):
        assert running.sample(f"vllm:request_{phase}_time_seconds_count") == 1
