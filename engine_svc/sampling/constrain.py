"""Constraints in the sampler: what may come next, and whether anything may follow what came.

A matcher that fails, in whatever way, fails for its own sequence.
"""

from __future__ import annotations

from dataclasses import replace

from engine_svc.grammar.panics import panics_are_errors
from engine_svc.output import Sampled
from engine_svc.sampling.state import SamplingState


def constrain(state: SamplingState) -> Sampled | Exception | None:
    """Note the mask of the next token in the state; a result when nothing is left to be chosen, or it failed."""
    try:
        with panics_are_errors():
            if state.matcher is None:
                return None
            state.mask = state.matcher.allowed(state.output, may_end=not state.must_go_on)
    except Exception as error:
        return error
    return Sampled((), completed=True) if state.mask is None else None


def conclude(state: SamplingState, sampled: Sampled) -> Sampled | Exception:
    """The same result, completed if it is."""
    if state.matcher is None or sampled.token_ids[-1] in state.sequence.end_token_ids:
        return sampled
    try:
        with panics_are_errors():
            return replace(sampled, completed=state.matcher.is_over([*state.output, *sampled.token_ids]))
    except Exception as error:
        return error
