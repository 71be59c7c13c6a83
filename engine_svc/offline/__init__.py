"""The engine from Python, without servers: same scheduler, cache, model and sampler, in the thread of the caller."""

from __future__ import annotations

from engine_svc.offline.llm import LLM
from engine_svc.offline.params import SamplingParams

__all__ = ["LLM", "SamplingParams"]
