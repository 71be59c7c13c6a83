"""The engine from Python, without servers: the same scheduler, KV cache, model and sampler, in the caller's thread."""

from __future__ import annotations

from engine_svc.offline.llm import LLM
from engine_svc.offline.params import SamplingParams

__all__ = ["LLM", "SamplingParams"]
