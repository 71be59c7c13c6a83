"""The engine, as a service and as a library: ``from engine_svc import LLM, SamplingParams``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine_svc.offline import LLM, SamplingParams

__all__ = ["LLM", "SamplingParams"]


def __getattr__(name: str) -> Any:
    """Imported on first use, because the service needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from engine_svc import offline

    return getattr(offline, name)
