from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.json_value import JsonValue, Reading, is_json_object
from tests.detokenizer_svc.given import cut_by

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)
json_texts = st.builds(
    lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent),
    json_values, st.booleans(), st.sampled_from([None, 0, 2]),
)  # fmt: skip
sizes = st.lists(st.integers(0, 5), max_size=30)
soup = st.lists(
    st.sampled_from([*'{}[]:,"\\ \n0123-+.eEu', "true", "false", "null", '"a"', '"a":', "\\u00e9", "\x01"]), max_size=20
).map("".join)


def scan(text: str, sizes: list[int]) -> tuple[Reading, int]:
    """How far a text is a value, and where reading stopped."""
    value, read = JsonValue(), 0
    for piece in cut_by(text, sizes):
        if value.reading is Reading.GOING_ON:
            read += value.feed(piece)
    return value.reading, read


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def loads(text: str) -> bool:
    """Whether the standard library takes a text for JSON."""
    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@given(json_texts, sizes)
def test_a_value_ends_where_it_ends(text: str, sizes: list[int]) -> None:
    assert scan(text + "]", sizes) == (Reading.WHOLE, len(text))
    assert scan(" \n" + text + " 1", sizes) == (Reading.WHOLE, len(text) + 2)


@given(json_texts, st.data())
def test_the_begin_of_a_value_is_never_broken(text: str, data: st.DataObject) -> None:
    begin = text[: data.draw(st.integers(0, len(text)))]
    assert scan(begin, [])[0] is not Reading.BROKEN


@given(soup, sizes)
def test_any_text_is_judged_as_the_standard_library_does(text: str, sizes: list[int]) -> None:
    reading, read = scan(text + "\x00", sizes)
    assert reading is not Reading.GOING_ON
    assert (reading, read) == scan(text + "\x00", [])
    whole = reading is Reading.WHOLE and text[read:].strip(" \t\n\r") == ""
    assert whole == loads(text)


@given(json_texts, st.integers(0, 30), st.sampled_from([*'{}[]:,"\\x 1\n']))
def test_one_wrong_character(text: str, at: int, character: str) -> None:
    broken = text[:at] + character + text[at + 1 :]
    reading, read = scan(broken + "\x00", [1] * len(broken))
    assert (reading is Reading.WHOLE and broken[read:].strip(" \t\n\r") == "") == loads(broken)


@pytest.mark.parametrize("number", ["0", "-0", "12", "1.5", "-0.0e-0", "1E+9", "1e9"])
def test_numbers(number: str) -> None:
    assert scan(number + ",", [1] * 9) == (Reading.WHOLE, len(number))
    assert scan(number, [])[0] is Reading.GOING_ON


@pytest.mark.parametrize("number", ["-", "01", "1.", ".5", "1e", "1e+", "+1", "--1", "1.e5", "0x1"])
def test_wrong_numbers_do_not_end_where_they_end(number: str) -> None:
    assert scan(number + ",", [1] * 9) != (Reading.WHOLE, len(number))


def test_depth_has_no_limit() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert scan(deep, []) == (Reading.WHOLE, len(deep))


@pytest.mark.parametrize(
    ("text", "answer"),
    [("{}", True), (' {"a": [1]} \n', True), ("[]", False), ("1", False), ("", False), (" ", False), ("{} x", False),
     ("{", False), ('"{}"', False), ("null", False)],
)  # fmt: skip
def test_is_json_object(text: str, answer: bool) -> None:
    assert is_json_object(text) == answer
