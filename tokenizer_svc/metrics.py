"""Prometheus metrics of the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from svclib.errors import public, row_for
from tokenizer_svc.prompt_tokenizer import PromptTokenizer, TokenizedPrompt

_SECONDS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class TokenizerMetrics:
    """The metrics, on the caller's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.render_seconds = Histogram(
            "pellucid_tokenizer_render_seconds", "Time to render chat templates.", buckets=_SECONDS, registry=registry
        )
        self.encode_seconds = Histogram(
            "pellucid_tokenizer_encode_seconds", "Time to encode prompts.", buckets=_SECONDS, registry=registry
        )
        self.prompt_tokens = Counter("pellucid_tokenizer_prompt_tokens", "Prompt tokens rendered.", registry=registry)
        self.rejected = Counter(
            "pellucid_tokenizer_rejected", "Calls answered with an error.", ["reason"], registry=registry
        )
        self._jobs = Gauge("pellucid_tokenizer_jobs", "Calls running or waiting for a thread.", registry=registry)
        self._template = Info("pellucid_tokenizer_template", "Capabilities of the chat template.", registry=registry)

    def observe(self, prompt: TokenizedPrompt) -> None:
        self.render_seconds.observe(max(prompt.rendered_at - prompt.started_at, 0))
        self.encode_seconds.observe(max(prompt.tokenized_at - prompt.rendered_at, 0))
        self.prompt_tokens.inc(len(prompt.token_ids))

    @contextmanager
    def counting_rejections(self) -> Iterator[None]:
        """Count errors raised in the ``with`` block, by their name on the wire."""
        try:
            yield
        except Exception as error:
            self.rejected.labels(row_for(public(error)).name).inc()
            raise

    def watch_jobs(self, count: Callable[[], float]) -> None:
        """Read the number of jobs from ``count`` at each scrape."""
        self._jobs.set_function(count)

    def describe(self, tokenizer: PromptTokenizer) -> None:
        """Publish the capabilities of the chat template."""
        abilities = asdict(tokenizer.capabilities) if tokenizer.capabilities else {}
        labels = {name: str(value).lower() for name, value in abilities.items() if isinstance(value, bool)}
        self._template.info({"version": tokenizer.template_version, **labels})
