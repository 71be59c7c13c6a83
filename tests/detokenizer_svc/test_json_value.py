from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.json_value import JsonValue, ScanState, scan_object
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
    st.sampled_from(
        [*"{}[]:,\"\\ \n0123-+.eEu'", "true", "false", "null", "True", "None", "Fal", '"a"', '"a":', "\\u00e9", "\x01"]
    ),
    max_size=20,
).map("".join)


def scanned(text: str, sizes: list[int] = []) -> tuple[JsonValue, str, int]:  # noqa: B006
    """A text scanned in pieces, its settled part, and the index where reading stopped."""
    value, read, settled = JsonValue(), 0, ""
    for piece in cut_by(text, sizes):
        if value.state is ScanState.INCOMPLETE:
            read += value.feed(piece)
            settled += value.take()
    return value, settled, read


def scan(text: str, sizes: list[int]) -> tuple[ScanState, int]:
    """The state after a text, and the index where reading stopped."""
    value, _, read = scanned(text, sizes)
    return value.state, read


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def loads(text: str) -> bool:
    """Whether the standard library accepts a text as JSON."""
    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@given(json_texts, sizes)
def test_a_value_is_scanned_to_its_end_and_keeps_its_text(text: str, sizes: list[int]) -> None:
    value, settled, read = scanned(text + "]", sizes)
    assert (value.state, settled, read) == (ScanState.COMPLETE, text, len(text))
    assert scan(" \n" + text + " 1", sizes) == (ScanState.COMPLETE, len(text) + 2)


@given(json_texts, st.data())
def test_a_prefix_of_a_value_is_never_invalid(text: str, data: st.DataObject) -> None:
    begin = text[: data.draw(st.integers(0, len(text)))]
    value, settled, _ = scanned(begin)
    assert value.state is not ScanState.INVALID
    assert text.startswith(settled)
    assert settled + value.take_held() == begin


@given(soup, sizes)
def test_a_text_is_a_value_if_and_only_if_the_standard_library_accepts_it(text: str, sizes: list[int]) -> None:
    value, settled, read = scanned(text + "\x00", sizes)
    assert value.state is not ScanState.INCOMPLETE or '"' in text
    if value.state is ScanState.COMPLETE:
        assert loads(settled)
    if loads(text):
        assert value.state is ScanState.COMPLETE
        assert settled == text[:read]
        assert text[read:].strip(" \t\n\r") == ""


@given(soup, sizes)
def test_settled_text_with_closing_is_a_value_however_the_text_is_cut(text: str, sizes: list[int]) -> None:
    value, settled, read = scanned("{" + text, sizes)
    assert loads(settled + value.closing)
    whole, settled_at_once, read_at_once = scanned("{" + text)
    assert (settled, value.closing, read, value.state) == (
        settled_at_once, whole.closing, read_at_once, whole.state
    )  # fmt: skip
    assert value.take_held() == whole.take_held()


@given(json_texts, st.integers(0, 30), st.sampled_from([*'{}[]:,"\\x 1\n']))
def test_one_wrong_character(text: str, at: int, character: str) -> None:
    broken = text[:at] + character + text[at + 1 :]
    value, settled, read = scanned(broken, [1] * len(broken))
    if value.state is ScanState.COMPLETE:
        assert loads(settled)
    elif loads(broken):  # a number at the end, which may continue
        assert read == len(broken)
        assert broken[-1].isdigit()


MENDED = [
    ('{"a": "x\ny"}', '{"a": "x\\ny"}'),
    ('{"a\t": "\r\b\f\x00\x1f\x7f"}', '{"a\\t": "\\r\\b\\f\\u0000\\u001f\x7f"}'),
    (r'{"a": "it\'s"}', '{"a": "it\'s"}'),
    (r'{"it\'s": 1}', '{"it\'s": 1}'),
    (r'{"a": "\d+\.\(x\)"}', r'{"a": "\\d+\\.\\(x\\)"}'),
    (r'{"a": "\x41\é"}', r'{"a": "\\x41\\é"}'),
    (r'{"a": "C:\users\u12"}', r'{"a": "C:\\users\\u12"}'),
    (r'{"a": "\u12\n"}', r'{"a": "\\u12\n"}'),
    ('{"a": "ls \\\n -l"}', '{"a": "ls \\\\\\n -l"}'),
    ('{"a": [1, 2 , ] , }', '{"a": [1, 2 ] }'),
    ("[[],]", "[[]]"),
    ('{"a": True, "b": [False,None , nul]}', None),
    ('{"a": True, "b": [False,None]}', '{"a": true, "b": [false,null]}'),
    ("{,}", None),
    ("[,]", None),
    ("[1,,]", None),
    ("[1,}", None),
    ('{"a": 01}', None),
    ("{'a': 1}", None),
    ("{a: 1}", None),
    ('{"a": NaN}', None),
    ('{"a": TRUE}', None),
    ('{"a": 1 // one\n}', None),
]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("text", "repaired"), MENDED)
def test_unambiguous_faults_are_repaired(text: str, repaired: str | None, size: int) -> None:
    value, settled, _ = scanned(text, [size] * len(text))
    assert value.state is (ScanState.INVALID if repaired is None else ScanState.COMPLETE)
    assert repaired is None or settled == repaired
    assert loads(settled + value.closing)


@pytest.mark.parametrize(
    ("text", "settled", "closing"),
    [
        ("{", "{", "}"),
        ('{"a', "{", "}"),
        ('{"a" : ', "{", "}"),
        ('{"a": "', '{"a": "', '"}'),
        ('{"a": "b\\', '{"a": "b', '"}'),
        ('{"a": "b\\u00e', '{"a": "b', '"}'),
        ('{"a": "b"', '{"a": "b"', "}"),
        ('{"a": [-', '{"a": [', "]}"),
        ('{"a": [-1.', '{"a": [-1', "]}"),
        ('{"a": [0', '{"a": [', "]}"),
        ('{"a": [0,', '{"a": [0', "]}"),
        ('{"a": [1e', '{"a": [1', "]}"),
        ('{"a": [1 , tru', '{"a": [1 ', "]}"),
        ('{"a": [1 , true, {"', '{"a": [1 , true, {', "}]}"),
        ('{"a": 1}', '{"a": 1}', ""),
    ],
)
def test_settled_text(text: str, settled: str, closing: str) -> None:
    value, taken, _ = scanned(text, [1] * len(text))
    assert (taken, value.closing) == (settled, closing)


@pytest.mark.parametrize("number", ["0", "-0", "12", "1.5", "-0.0e-0", "1E+9", "1e9"])
def test_numbers(number: str) -> None:
    assert scan(number + ",", [1] * 9) == (ScanState.COMPLETE, len(number))
    assert scan(number, [])[0] is ScanState.INCOMPLETE


@pytest.mark.parametrize("number", ["-", "01", "1.", ".5", "1e", "1e+", "+1", "--1", "1.e5", "0x1"])
def test_invalid_numbers_are_not_complete(number: str) -> None:
    assert scan(number + ",", [1] * 9) != (ScanState.COMPLETE, len(number))


def test_depth_has_no_limit() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert scan(deep, []) == (ScanState.COMPLETE, len(deep))


@pytest.mark.parametrize(
    ("text", "answer"),
    [("{}", True), (' {"a": [1]} \n', True), ("[]", False), ("1", False), ("", False), (" ", False), ("{} x", False),
     ("{", False), ('"{}"', False), ("null", False)],
)  # fmt: skip
def test_scan_object(text: str, answer: bool) -> None:
    value = scan_object(text)
    assert (value is not None) == answer
    assert value is None or value.take() == text.rstrip()
