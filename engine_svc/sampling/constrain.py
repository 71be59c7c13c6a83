"""Constraints in the sampler: which tokens are allowed next, and whether the output is complete.

A failing matcher fails its own sequence only.
"""

from __future__ import annotations

from dataclasses import replace

from engine_svc.grammar.panics import panics_are_errors
from engine_svc.output import Sampled
from engine_svc.sampling.state import SamplingState


def constrain(state: SamplingState) -> Sampled | Exception | None:
    """Set the mask of the next token in the state; returns a result when no token is allowed, or on failure."""
    try:
        with panics_are_errors():
            if state.matcher is None:
                return None
            state.mask = state.matcher.allowed(state.output, may_end=not state.must_continue)
    except Exception as error:
        return error
    return Sampled((), completed=True) if state.mask is None else None


def conclude(state: SamplingState, sampled: Sampled) -> Sampled | Exception:
    """The same result, ``completed`` if the constraint is."""
    if state.matcher is None or sampled.token_ids[-1] in state.sequence.end_token_ids:
        return sampled
    try:
        with panics_are_errors():
            return replace(sampled, completed=state.matcher.is_over([*state.output, *sampled.token_ids]))
    except Exception as error:
        return error
