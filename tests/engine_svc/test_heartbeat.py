from __future__ import annotations

import time

from engine_svc.heartbeat import Heartbeat

PAST = 1e-9
"""A patience that every clock tick exhausts."""


def tick() -> None:
    time.sleep(0.001)


def test_nothing_is_owed_at_first() -> None:
    heartbeat = Heartbeat(PAST)
    tick()
    assert not heartbeat.is_stalled


def test_a_step_that_does_not_return_is_a_stall() -> None:
    heartbeat = Heartbeat(PAST)
    heartbeat.owe()
    tick()
    assert heartbeat.is_stalled


def test_patience() -> None:
    heartbeat = Heartbeat(3600.0)
    heartbeat.owe()
    tick()
    assert not heartbeat.is_stalled


def test_being_idle_is_no_stall() -> None:
    heartbeat = Heartbeat(PAST)
    heartbeat.owe()
    heartbeat.pay()
    heartbeat.rest()
    tick()
    assert not heartbeat.is_stalled


def test_trying_again_does_not_pay() -> None:
    heartbeat = Heartbeat(0.02)
    heartbeat.owe()
    time.sleep(0.03)
    heartbeat.owe()
    assert heartbeat.is_stalled
    heartbeat.pay()
    assert not heartbeat.is_stalled
