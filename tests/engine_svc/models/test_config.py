from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine_svc.models.config import RawConfig
from engine_svc.weights.errors import ModelLoadError


def test_values_are_read_by_name_and_type() -> None:
    raw = RawConfig({"a": 3, "b": 0.5, "c": True, "d": "text", "e": [1, 2.5], "f": {"g": 1}, "h": 2, "i": ["x", "y"]})

    assert raw.integer("a") == 3
    assert raw.number("b") == 0.5
    assert raw.number("h") == 2.0
    assert raw.flag("c", False) is True
    assert raw.text("d") == "text"
    assert raw.texts("i") == ("x", "y")
    assert raw.optional_number("b") == 0.5
    assert raw.numbers("e") == (1.0, 2.5)
    section = raw.section("none", "f")
    assert section is not None
    assert section.integer("g") == 1


@pytest.mark.parametrize("values", [{}, {"a": None}])
def test_null_and_absent_take_the_default(values: dict[str, Any]) -> None:
    raw = RawConfig(values)

    assert raw.integer("a", 7) == 7
    assert raw.number("a", 0.25) == 0.25
    assert raw.flag("a", True) is True
    assert raw.optional_integer("a") is None
    assert raw.section("a") is None
    assert raw.text("a") is None
    assert raw.texts("a") is None
    assert raw.optional_number("a") is None


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda raw: raw.integer("missing"), "config lacks missing"),
        (lambda raw: raw.integer("text"), "text has a value of the wrong type, '8'"),
        (lambda raw: raw.integer("true"), "true has a value of the wrong type"),
        (lambda raw: raw.integer("half"), "half has a value of the wrong type"),
        (lambda raw: raw.integer("zero"), "zero must be 1 or above, got 0"),
        (lambda raw: raw.optional_integer("zero"), "zero must be 1 or above, got 0"),
        (lambda raw: raw.number("true"), "true has a value of the wrong type"),
        (lambda raw: raw.flag("zero", False), "zero has a value of the wrong type"),
        (lambda raw: raw.section("text"), "text has a value of the wrong type"),
        (lambda raw: raw.section("inner").integer("x"), r"config\.inner lacks x"),
    ],
)
def test_what_is_missing_or_wrong_is_named(read: Callable[[RawConfig], object], reason: str) -> None:
    raw = RawConfig({"text": "8", "true": True, "half": 0.5, "zero": 0, "inner": {}})

    with pytest.raises(ModelLoadError, match=reason):
        read(raw)


def test_zero_is_a_number_where_it_means_something() -> None:
    assert RawConfig({"zero": 0}).integer("zero", least=0) == 0


def test_defaults_are_for_what_is_absent_and_null_stays_null() -> None:
    raw = RawConfig({"given": 1, "null": None}).with_defaults(given=8, null=8, absent=8)

    assert (raw.integer("given"), raw.integer("absent"), raw.optional_integer("null")) == (1, 8, None)


def test_a_switch_that_is_implemented_one_way_only() -> None:
    raw = RawConfig({"act": "gelu", "silu": "silu", "none": None})

    raw.only("silu", "silu")
    raw.only("none", "silu")
    raw.only("absent", "silu")
    with pytest.raises(ModelLoadError, match="act 'gelu' is not supported, only 'silu'"):
        raw.only("act", "silu")
