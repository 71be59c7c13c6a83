from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pellucid.backoff import Backoff, BackoffPolicy


def test_delays_double_up_to_the_cap() -> None:
    backoff = Backoff(BackoffPolicy(first=0.5, cap=3.0, reset_after=60.0))
    assert [backoff.delay_after(lifetime=1.0) for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_long_run_resets_the_delay() -> None:
    backoff = Backoff(BackoffPolicy(first=0.5, cap=30.0, reset_after=60.0))
    for _ in range(4):
        backoff.delay_after(lifetime=59.9)
    assert backoff.delay_after(lifetime=60.0) == 0.5
    assert backoff.failures == 1


@given(st.lists(st.floats(min_value=0, max_value=1e9), min_size=1, max_size=3000))
def test_delays_stay_within_bounds(lifetimes: list[float]) -> None:
    policy = BackoffPolicy()
    backoff = Backoff(policy)
    delays = [backoff.delay_after(lifetime) for lifetime in lifetimes]
    assert all(policy.first <= delay <= policy.cap for delay in delays)


def test_many_failures_do_not_overflow() -> None:
    backoff = Backoff(BackoffPolicy(), failures=10**6)
    assert backoff.delay_after(lifetime=0.0) == BackoffPolicy().cap
