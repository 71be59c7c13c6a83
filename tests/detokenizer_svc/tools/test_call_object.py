from __future__ import annotations

import json

import pytest

from detokenizer_svc.json_value import ScanState
from detokenizer_svc.tools.call_object import CallObject


def arguments_of(call: CallObject) -> str:
    assert call.arguments is not None
    return call.arguments.take()


def scan(text: str, size: int) -> CallObject:
    call = CallObject()
    for start in range(0, len(text), size):
        if call.state is ScanState.INCOMPLETE:
            call.feed(text[start : start + size])
    return call


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', "f", '{"a": 1}'),
        ('{"arguments": {"a": 1}, "name": "f"}', "f", '{"a": 1}'),
        ('{"name":"f","arguments":{ "a" :\n[ ] }}', "f", '{ "a" :\n[ ] }'),
        ('{"name": "f", "arguments": "{\\"a\\": \\"\\\\n\\"}"}', "f", '{"a": "\\n"}'),
        ('{"name": "f", "arguments": " {} "}', "f", " {}"),
        ('{"name": "f", "arguments": "{\\"a\\": \\"x\\ny\\"}"}', "f", '{"a": "x\\ny"}'),
        ('{"name": "f", "arguments": {"a": "x\ny\t"}}', "f", '{"a": "x\\ny\\t"}'),
        ('{"name": "f", "arguments": {"a": [1, True,], },}', "f", '{"a": [1, true]}'),
        ('{"x\n": "\n", "name": "f"}', "f", "{}"),
        ('{"name": "f", "arguments": {}, "name": "g", "parameters": 3}', "f", "{}"),
        ('{"name": "f", "parameters": null}', "f", "{}"),
        ('{"name": "\\ud83d\\ude00"}', "😀", "{}"),
        ('{"x": 1, "name": "f", "y": {"name": "g"}}', "f", "{}"),
    ],
)
def test_calls(size: int, text: str, name: str, arguments: str) -> None:
    call = scan(text, size)
    assert call.state is ScanState.COMPLETE
    assert call.usable
    assert call.name == name
    assert arguments_of(call) == arguments
    assert arguments_of(call) == ""
    assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("x", 0),
        ("{x", 1),
        ('{"name" x', 8),
        ('{"name": 1', 9),
        ('{"name": ""', 11),
        ('{"name": "f" "', 13),
        ('{"name": "f", "name"', 20),
        ('{"arguments": [', 14),
        ('{"arguments": t', 14),
        ('{"arguments": nx', 15),
        ('{"arguments": "x"', 17),
        ('{"arguments": {"a" 1', 19),
        ('{"name": "f", ,', 14),
        ('{"x": tru!', 9),
        ('{"arguments": "\\"\\\\ud800\\""', 27),
    ],
)
def test_where_a_call_becomes_invalid(size: int, text: str, read: int) -> None:
    call = CallObject()
    total = 0
    for start in range(0, len(text), size):
        total += call.feed(text[start : start + size])
    assert call.state is ScanState.INVALID
    assert total == read


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        ('{"name": "f", "arguments": {}', True),
        ('{"name": "f", "arguments": {} ]', True),
        ('{"name": "f", "arguments": {},', False),
        ('{"name": "f", "arguments": {', False),
        ('{"name": "f"', False),
        ('{"name": "f", "arguments": "[]"', False),
        ('{"name": "f", "arguments": {}, "name"', False),
        ('{"arguments": {}', False),
        ('{"arguments": {}}', False),
        ("{}", False),
        ("", False),
    ],
)
def test_a_call_that_lacks_only_its_last_bracket_is_usable(text: str, usable: bool) -> None:
    assert scan(text, 1000).usable == usable
    assert scan(text, 1).usable == usable


def test_arguments_are_emitted_as_they_arrive() -> None:
    call = CallObject()
    call.feed('{"name": "f", "arguments": {"a"')
    assert (arguments_of(call), call.has_all_arguments) == ("{", False)
    call.feed(": 1")
    assert (arguments_of(call), call.has_all_arguments) == ('"a": 1', False)
    call.feed("}}")
    assert (arguments_of(call), call.has_all_arguments) == ("}", True)


@pytest.mark.parametrize("rest", ['"arguments": ', '"arguments": "{', '"x": {'])
def test_arguments_are_unknown_until_they_are_an_object(rest: str) -> None:
    assert scan(f'{{"name": "f", {rest}', 1).arguments is None


def test_a_lone_surrogate_in_encoded_arguments_makes_the_call_invalid() -> None:
    assert scan('{"name": "f", "arguments": "{\\"a\\": \\"\\ud800\\"}"}', 1000).state is ScanState.INVALID
    fine = scan('{"name": "f", "arguments": "{\\"a\\": \\"\\\\ud800\\"}"}', 1000)
    assert arguments_of(fine) == '{"a": "\\ud800"}'
