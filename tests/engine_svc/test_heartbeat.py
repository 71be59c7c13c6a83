from __future__ import annotations

import time

from engine_svc.heartbeat import Heartbeat

NO_PATIENCE = 1e-9
"""Stall seconds that any clock tick exceeds."""


def tick() -> None:
    time.sleep(0.001)


def test_no_step_is_expected_at_first() -> None:
    heartbeat = Heartbeat(NO_PATIENCE)
    tick()
    assert not heartbeat.is_stalled


def test_a_step_that_does_not_return_is_a_stall() -> None:
    heartbeat = Heartbeat(NO_PATIENCE)
    heartbeat.expect_step()
    tick()
    assert heartbeat.is_stalled


def test_no_stall_before_the_stall_seconds() -> None:
    heartbeat = Heartbeat(3600.0)
    heartbeat.expect_step()
    tick()
    assert not heartbeat.is_stalled


def test_being_idle_is_no_stall() -> None:
    heartbeat = Heartbeat(NO_PATIENCE)
    heartbeat.expect_step()
    heartbeat.step_done()
    heartbeat.idle()
    tick()
    assert not heartbeat.is_stalled


def test_another_attempt_does_not_end_a_stall() -> None:
    heartbeat = Heartbeat(0.02)
    heartbeat.expect_step()
    time.sleep(0.03)
    heartbeat.expect_step()
    assert heartbeat.is_stalled
    heartbeat.step_done()
    assert not heartbeat.is_stalled
