"""The engine's metrics. Where vLLM has the same metric, it has vLLM's name, type, unit and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from engine_svc.output import Loads
from engine_svc.request import FinishReason
from engine_svc.request_state import RequestState

_PHASE_SECONDS: Final = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
                         480.0, 960.0, 1920.0, 7680.0)  # fmt: skip
_STEP_TOKENS: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_STEP_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class EngineMetrics:
    """Written by the step loop; read from ``registry`` by the metrics endpoint."""

    def __init__(self, registry: CollectorRegistry, model_name: str) -> None:
        self._registry = registry
        self._model_name = model_name
        self._success = Counter(
            "vllm:request_success",
            "Finished choices, by finish reason.",
            ["model_name", "finished_reason"],
            registry=registry,
        )
        self._finished = {
            reason: self._success.labels(model_name, reason) for reason in ("stop", "length", "abort", "error")
        }
        self._prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens of started requests.")
        self._generation_tokens = self._counter("vllm:generation_tokens", "Tokens generated.")
        self._cache_queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._cache_hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self._preemptions = self._counter("vllm:num_preemptions", "Preemptions of sequences.")
        self._drafts = self._counter(
            "vllm:spec_decode_num_drafts", "Drafts: sequences with draft tokens, summed over steps."
        )
        self._draft_tokens = self._counter("vllm:spec_decode_num_draft_tokens", "Draft tokens proposed.")
        self._accepted_tokens = self._counter("vllm:spec_decode_num_accepted_tokens", "Draft tokens accepted.")
        self._aborted = self._counter("pellucid_engine_requests_aborted", "Requests aborted by their clients.")
        self._failed = self._counter("pellucid_engine_requests_failed", "Requests that failed with an error.")
        self._step_faults = self._counter("pellucid_engine_step_faults", "Steps that failed as a whole.")
        self._queue_time = self._phase("vllm:request_queue_time_seconds", "From arrival to the first step.")
        self._prefill_time = self._phase("vllm:request_prefill_time_seconds", "From the first step to the first token.")
        self._decode_time = self._phase("vllm:request_decode_time_seconds", "From the first token to the last.")
        self._grammar_time = self._histogram(
            "pellucid_engine_grammar_compile_seconds", "Duration of compiling a constraint.", _STEP_SECONDS
        )
        self._step_tokens = self._histogram("vllm:iteration_tokens_total", "Tokens computed in a step.", _STEP_TOKENS)
        self._step_time = self._histogram("pellucid_engine_step_seconds", "Duration of a step.", _STEP_SECONDS)

    def describe_cache(
        self, *, block_size: int, num_blocks: int, enable_prefix_caching: bool, cache_dtype: str
    ) -> None:
        """Export the layout of the KV cache as labels, as vLLM does; its `num_gpu_blocks` are blocks on any device."""
        labels = {
            "model_name": self._model_name,
            "block_size": str(block_size),
            "num_gpu_blocks": str(num_blocks),
            "enable_prefix_caching": str(enable_prefix_caching),
            "cache_dtype": cache_dtype,
        }
        info = Gauge("vllm:cache_config_info", "Layout of the KV cache.", list(labels), registry=self._registry)
        info.labels(**labels).set(1)

    def watch_loads(self, loads: Callable[[], Loads], num_blocks: int) -> None:
        """Export the current load at each scrape; ``loads`` must be callable from any thread.

        A model that embeds has no blocks.
        """
        self._gauge("vllm:num_requests_running", "Sequences being computed.", lambda: loads().num_running)
        self._gauge("vllm:num_requests_waiting", "Sequences waiting to be scheduled.", lambda: loads().num_waiting)
        if num_blocks:
            self._gauge(
                "vllm:kv_cache_usage_perc",
                "Share of the KV cache in use; 1 is all of it.",
                lambda: 1.0 - loads().num_free_blocks / num_blocks,
            )

    def count_start(self, state: RequestState) -> None:
        """A request was scheduled for the first time."""
        num_prompt_tokens = len(state.request.prompt_token_ids)
        self._prompt_tokens.inc(num_prompt_tokens)
        self._cache_queries.inc(num_prompt_tokens)
        self._cache_hits.inc(state.num_cached_tokens)

    def count_step(self, *, num_tokens: int, num_generated: int, num_preempted: int, seconds: float) -> None:
        """A step finished."""
        self._step_tokens.observe(num_tokens)
        self._step_time.observe(seconds)
        self._generation_tokens.inc(num_generated)
        if num_preempted:
            self._preemptions.inc(num_preempted)

    def count_pass(self, *, num_tokens: int, seconds: float) -> None:
        """A pass of a model that embeds finished or failed."""
        self._step_tokens.observe(num_tokens)
        self._step_time.observe(seconds)
        self._prompt_tokens.inc(num_tokens)

    def count_draft(self, num_tokens: int, num_accepted: int) -> None:
        """A sequence had ``num_tokens`` draft tokens in a step, of which ``num_accepted`` were accepted."""
        self._drafts.inc()
        self._draft_tokens.inc(num_tokens)
        self._accepted_tokens.inc(num_accepted)

    def count_grammar(self, seconds: float) -> None:
        """A constraint was compiled. Callable from any thread."""
        self._grammar_time.observe(seconds)

    def count_step_fault(self) -> None:
        """A step failed as a whole."""
        self._step_faults.inc()

    def count_choice(self, finish_reason: FinishReason) -> None:
        """A choice finished without an error."""
        self._finished[finish_reason].inc()

    def count_finish(self, state: RequestState) -> None:
        """A request finished without an error."""
        stats = state.stats()
        if stats.first_token_at:
            self._queue_time.observe(stats.prefill_start_at - stats.queue_enter_at)
            self._prefill_time.observe(stats.first_token_at - stats.prefill_start_at)
            self._decode_time.observe(stats.last_token_at - stats.first_token_at)

    def count_abort(self, num_choices: int) -> None:
        """A request with this many unfinished choices was aborted."""
        self._aborted.inc()
        self._finished["abort"].inc(num_choices)

    def count_failure(self, num_choices: int) -> None:
        """A request with this many unfinished choices failed."""
        self._failed.inc()
        self._finished["error"].inc(num_choices)

    def count_refusal(self, num_choices: int) -> None:
        """A request with this many unfinished choices was refused while it ran: the client's error, not a failure."""
        self._finished["error"].inc(num_choices)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ["model_name"], registry=self._registry).labels(self._model_name)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(name, text, ["model_name"], registry=self._registry, buckets=buckets)
        return histogram.labels(self._model_name)

    def _phase(self, name: str, text: str) -> Histogram:
        return self._histogram(name, text, _PHASE_SECONDS)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        gauge = Gauge(name, text, ["model_name"], registry=self._registry)
        gauge.labels(self._model_name).set_function(value)
