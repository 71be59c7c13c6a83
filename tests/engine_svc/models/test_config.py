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
        (lambda raw: raw.integer("text"), "text must be an integer, got '8'"),
        (lambda raw: raw.integer("true"), "true must be an integer, got True"),
        (lambda raw: raw.integer("half"), "half must be an integer, got 0.5"),
        (lambda raw: raw.integer("zero"), "zero must be at least 1, got 0"),
        (lambda raw: raw.optional_integer("zero"), "zero must be at least 1, got 0"),
        (lambda raw: raw.number("true"), "true must be a number, got True"),
        (lambda raw: raw.flag("zero", False), "zero must be true or false, got 0"),
        (lambda raw: raw.section("text"), "text must be an object, got '8'"),
        (lambda raw: raw.section("inner").integer("x"), r"config\.inner lacks x"),
    ],
)
def test_errors_name_the_field(read: Callable[[RawConfig], object], reason: str) -> None:
    raw = RawConfig({"text": "8", "true": True, "half": 0.5, "zero": 0, "inner": {}})

    with pytest.raises(ModelLoadError, match=reason):
        read(raw)


def test_minimum_may_be_zero() -> None:
    assert RawConfig({"zero": 0}).integer("zero", minimum=0) == 0


def test_with_defaults_fills_absent_fields_and_keeps_null() -> None:
    raw = RawConfig({"given": 1, "null": None}).with_defaults(given=8, null=8, absent=8)

    assert (raw.integer("given"), raw.integer("absent"), raw.optional_integer("null")) == (1, 8, None)


def test_require_refuses_other_values() -> None:
    raw = RawConfig({"act": "gelu", "silu": "silu", "none": None})

    raw.require("silu", "silu")
    raw.require("none", "silu")
    raw.require("absent", "silu")
    with pytest.raises(ModelLoadError, match="act 'gelu' is not supported, only 'silu'"):
        raw.require("act", "silu")
