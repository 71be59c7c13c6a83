from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from gateway.http.json_body import check_depth, check_json_headers, format_path, parse_object
from gateway.policy.limits import MAX_JSON_DEPTH, MAX_JSON_VALUES
from svclib.errors import InvalidRequest, UnsupportedMediaType

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)  # fmt: skip


def fault(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_object(body)
    return caught.value


@given(st.dictionaries(st.text(), values, max_size=5))
def test_valid_json_is_read(document: dict[str, Any]) -> None:
    assert parse_object(orjson.dumps(document)) == document


@given(st.binary())
def test_any_bytes_raise_only_invalid_request(body: bytes) -> None:
    with suppress(InvalidRequest):
        assert isinstance(parse_object(body), dict)


@pytest.mark.parametrize("body", [b"[]", b"5", b'"text"', b"null", b"true"])
def test_only_objects(body: bytes) -> None:
    assert "object" in fault(body).message


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{,}", b"{'a': 1}", b'{"a": 01}', b'{"a": 1}x', b"\xff", b"\xef\xbb\xbf{}"]
)
def test_invalid_json_has_no_param(body: bytes) -> None:
    error = fault(body)
    assert error.param is None
    assert "not valid JSON" in error.message


def test_utf_16_is_refused() -> None:
    assert "not valid JSON" in fault('{"a": 1}'.encode("utf-16")).message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (rb'{"a": "\ud800"}', "a"),
        (rb'{"a": ["x", {"b": "x\udfffy"}]}', "a[1].b"),
        (rb'{"messages": [{"role": "user", "content": "a\ud800b"}]}', "messages[0].content"),
        (rb'{"messages": [{"content": [{"type": "text", "text": "\ud83d\ud83d"}]}]}', "messages[0].content[0].text"),
        (rb'{"a": {"\ud800": 1}}', "a"),
        (b'{"temperature": NaN}', "temperature"),
        (b'{"a": {"b": [1, -Infinity]}}', "a.b[1]"),
        (b'{"top_p": 1e999}', "top_p"),
        (b'{"seed": ' + b"9" * 400 + b"}", "seed"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "seed"),
    ],
)
def test_lone_surrogates_and_infinite_numbers_are_located(body: bytes, param: str) -> None:
    error = fault(body)
    assert error.param == param
    assert param in error.message


def test_surrogate_pair_is_one_character() -> None:
    assert parse_object(rb'{"a": "\ud83d\ude00"}') == {"a": "😀"}


@pytest.mark.parametrize("piece", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("times", [2000, 20_000])
def test_deep_documents_are_refused(piece: bytes, times: int) -> None:
    closing = {b"[": b"]", b'{"a":': b"}", b'[{"a":': b"}]"}[piece]
    whole = b'{"a":' + piece * times + b"1" + closing * times + b"}"
    assert "deep" in fault(whole).message
    assert fault(whole[: len(whole) // 2]).param is None


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def test_depth_at_the_limit_and_one_above() -> None:
    check_depth(nested(MAX_JSON_DEPTH), "x")
    with pytest.raises(InvalidRequest) as caught:
        check_depth(nested(MAX_JSON_DEPTH + 1), "x")
    assert caught.value.param == "x"


def test_number_of_values_at_the_limit_and_one_above() -> None:
    room = MAX_JSON_VALUES - 1  # The object and the list have a bracket each; the first value has no comma.
    assert len(parse_object(b'{"a":[' + b",".join([b"1"] * room) + b"]}")["a"]) == room
    assert "values" in fault(b'{"a":[' + b",".join([b"1"] * (room + 1)) + b"]}").message


@pytest.mark.parametrize("piece", ["[],", "a,{", '\\",', "\\\\,", '\\\\\\",[', "\\n,,"])
def test_separators_in_strings_are_not_counted(piece: str) -> None:
    body = ('{"a":"' + piece * MAX_JSON_VALUES + '"}').encode()
    assert parse_object(body) == json.loads(body)


def test_strings_are_counted() -> None:
    for text in (b'"",', b'"\\\\",', b'"\\"",', b'"a,b",'):
        assert "values" in fault(b'{"a":[' + text * (MAX_JSON_VALUES + 1) + b"1]}").message


def test_format_path() -> None:
    assert format_path(("messages", 0, "content", 12, "text")) == "messages[0].content[12].text"
    assert format_path(()) == ""


@pytest.mark.parametrize(
    "value",
    ["application/json", "Application/JSON", "application/json; charset=utf-8", 'application/json;charset="UTF-8"',
     " application/json ", "application/json; profile=x"],
)  # fmt: skip
def test_json(value: str) -> None:
    check_json_headers(Headers({"content-type": value}))


def test_missing_content_type_is_json() -> None:
    check_json_headers(Headers({}))
    with pytest.raises(UnsupportedMediaType):
        check_json_headers(Headers({"content-encoding": "gzip"}))


@pytest.mark.parametrize(
    "headers",
    [{"content-type": ""}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"},
     {"content-type": "application/jsonx"}, {"content-type": "application/json; charset=latin-1"},
     {"content-type": "multipart/form-data; boundary=application/json"},
     {"content-type": "application/json", "content-encoding": "gzip"}],
    ids=str,
)  # fmt: skip
def test_other_media_types_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(UnsupportedMediaType):
        check_json_headers(Headers(headers))
