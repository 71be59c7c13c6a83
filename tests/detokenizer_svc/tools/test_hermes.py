from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.deltas import Content, Marker, ToolCallPiece
from detokenizer_svc.formatter import FormatSpec, Formatter
from detokenizer_svc.stage import ParserContext, Tool
from detokenizer_svc.tools.hermes import CLOSING, OPENING, Hermes
from tests.detokenizer_svc.given import BYTES, SIZES, Output, cut, cut_by, run, run_text, vocabulary_of
from tests.detokenizer_svc.test_json_value import json_values

SPEC = FormatSpec(tool_parser="hermes")
FULL = json.dumps({"text": "x" * 50, "n": [1.5, True, None], "o": {"é": "\\ \u2028"}})

names = st.text(min_size=1, max_size=10).filter(lambda name: name.encode("utf-8", "replace").decode() == name)
arguments = st.dictionaries(st.text(max_size=6), json_values, max_size=4)
spaces = st.text(alphabet=" \n\t", max_size=3)
plain = st.text(alphabet="ab<>/ \n_calltoé", max_size=12).filter(lambda text: "<t" not in text and "</t" not in text)
sizes = st.lists(st.integers(0, 9), max_size=60)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, str]]]:
    """Text with calls, its content, and the calls with their arguments as written."""
    text = content = draw(plain)
    calls = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(names)
        raw = json.dumps(draw(arguments), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 0, 2])))
        raw = raw.encode("utf-8", "replace").decode()
        members = draw(st.permutations([f'"name": {json.dumps(name)}', f'"arguments": {raw}']))
        after = draw(plain)
        text += f"{OPENING}{draw(spaces)}{{{', '.join(members)}}}{draw(spaces)}{CLOSING}{after}"
        content += after.lstrip(" \n\t") or ""
        calls.append((name, raw))
    return text, content, calls


@given(outputs(), sizes)
def test_calls_between_text_in_any_pieces(made: tuple[str, str, list[tuple[str, str]]], sizes: list[int]) -> None:
    text, content, calls = made
    output = run(SPEC, cut_by(text.encode(), sizes))
    assert output.calls == calls
    assert "".join(output.content.split()) == "".join(content.split())
    assert output.num_failures == 0
    assert output.ending is not None
    assert output.ending.finish_reason == "tool_calls"


@given(outputs(), st.data())
def test_an_output_cut_by_length_gives_a_prefix_of_its_calls(
    made: tuple[str, str, list[tuple[str, str]]], data: st.DataObject
) -> None:
    text, _, calls = made
    begin = text.encode()[: data.draw(st.integers(0, len(text.encode())))].decode(errors="ignore")
    output = run_text(SPEC, begin, size=3, reason="length")
    assert output == run_text(SPEC, begin, reason="length")
    assert output.calls[:-1] == calls[: max(len(output.calls) - 1, 0)]
    for (name, arguments), (full_name, full_arguments) in zip(output.calls, calls, strict=False):
        assert name == full_name
        assert full_arguments.startswith(arguments)
    if not output.calls:
        assert output.content == begin


@given(outputs(), st.data())
def test_an_output_that_stops_anywhere_gives_complete_objects(
    made: tuple[str, str, list[tuple[str, str]]], data: st.DataObject
) -> None:
    text, _, _ = made
    begin = text.encode()[: data.draw(st.integers(0, len(text.encode())))].decode(errors="ignore")
    output = run_text(SPEC, begin + data.draw(st.sampled_from(["", "}", "]", "\\", '"', "x", "<"])), size=2)
    assert all(isinstance(json.loads(arguments), dict) for _, arguments in output.calls)
    assert output.ending is not None
    assert output.ending.finish_reason == ("tool_calls" if output.calls else "stop")


def call_with(value: str) -> str:
    return f'{OPENING}\n{{"name": "write", "arguments": {{"text": "{value}"}}}}\n{CLOSING}'


def pieces_of(output: Output) -> list[ToolCallPiece]:
    return [delta for delta in output.deltas if isinstance(delta, ToolCallPiece)]


def test_the_name_is_emitted_first_then_arguments_as_they_arrive() -> None:
    formatter = Formatter(BYTES, SPEC)

    def deltas(text: str) -> list[tuple[str, str]]:
        items = formatter.feed(list(text.encode())).deltas
        return [(item.name, item.arguments) for item in items if isinstance(item, ToolCallPiece)]

    assert deltas('<tool_call>\n{"name": "get_weather"') == []
    assert deltas(', "arguments": ') == []
    assert deltas("{") == [("get_weather", ""), ("", "{")]
    assert deltas('"city"') == []
    assert deltas(': "Par') == [("", '"city": "Par')]
    assert deltas("\n\\") == [("", "\\n")]
    assert deltas('t"') == [("", '\\t"')]
    assert deltas(', "n": 12') == [("", ', "n": 12')]
    assert deltas("}") == [("", "}")]
    assert deltas("}\n</tool_call>") == []


@pytest.mark.parametrize("size", SIZES)
def test_arguments_are_the_text_of_the_model(size: int) -> None:
    output = run_text(SPEC, f'{OPENING}{{"name": "f", "arguments": {FULL}}}{CLOSING}', size)
    assert output.calls == [("f", FULL)]


def test_nothing_is_emitted_before_the_name_is_known() -> None:
    text = f'{OPENING}{{"arguments": {{"text": "{"x" * 2000}"}}, "name": "write"}}{CLOSING}'
    first, second = pieces_of(run_text(SPEC, text, size=1))
    assert (first.name, first.arguments) == ("write", "")
    assert json.loads(second.arguments) == {"text": "x" * 2000}


BROKEN = [
    ('{"name": "f", "arguments": {"a": 1, b}}', '{"a": 1}', ", b}}", 1),
    ('{"name": "f", "arguments": {"a": yes}}', "{}", '"a": yes}}', 1),
    ('{"name": "f", "arguments": {"a": [1, {"b": NaN}]}}', '{"a": [1, {}]}', '"b": NaN}]}}', 1),
    ('{"name": "f", "arguments": {"a": {"b": "x"]}}', '{"a": {"b": "x"}}', "]}}", 1),
    ('{"name": "f", "arguments": { x', "{ }", "x", 1),
    ('{"name": "f", "arguments": {"a": 1} x', '{"a": 1}', "x", 0),
    ('{"name": "f", "arguments": {"a": 1}, x', '{"a": 1}', "x", 1),
    ('{"name": "f", "arguments": "{}", x', "{}", "x", 1),
]


@pytest.mark.parametrize(("text", "arguments", "rest", "num_failures"), BROKEN)
@pytest.mark.parametrize("size", SIZES)
def test_a_call_that_becomes_invalid_is_closed_and_the_rest_is_content(
    text: str, arguments: str, rest: str, num_failures: int, size: int
) -> None:
    output = run_text(SPEC, f"Hm. {OPENING}{text}\n{CLOSING}\nSo.", size)
    assert output.calls == [("f", arguments)]
    assert output.content == f"Hm. {rest}So."
    assert output.num_failures == num_failures


STOPPED = [
    ('{"a": "Par', '{"a": "Par"}', '{"a": "Par'),
    ('{"a": "x\\', '{"a": "x"}', '{"a": "x\\'),
    ('{"a": [1, 2', '{"a": [1, 2]}', '{"a": [1, 2'),
    ('{"a": [1, -', '{"a": [1]}', '{"a": [1, -'),
    ('{"a": 1, "b', '{"a": 1}', '{"a": 1, "b'),
    ("{", "{}", "{"),
    ('{"a": 1}', '{"a": 1}', '{"a": 1}'),
]


@pytest.mark.parametrize(("written", "closed", "open_"), STOPPED)
@pytest.mark.parametrize("size", SIZES)
def test_arguments_stay_open_only_where_the_output_was_cut(written: str, closed: str, open_: str, size: int) -> None:
    text = f'{OPENING}{{"name": "f", "arguments": {written}'
    stopped = run_text(SPEC, text, size)
    assert stopped.calls == [("f", closed)]
    assert stopped.num_failures == (written != closed)
    cut_off = run_text(SPEC, text, size, "length")
    assert cut_off.calls == [("f", open_)]
    assert cut_off.num_failures == 0
    by_stop_string = run_text(replace(SPEC, stop=("STOP",)), text + "STOP", size)
    assert by_stop_string.calls == [("f", closed)]


@pytest.mark.parametrize("rest", ["", " b}}", ' "b": 2}', ' "b": 2}}', ' "b": 2}, "name": "g"}', ' "b": 2}, x'])
@pytest.mark.parametrize("start", ['{"name": "f", "arguments": {"a": 1,', '{"arguments": {"a": 1,'])
@pytest.mark.parametrize("in_reasoning", [False, True])
def test_emitted_parts_of_a_call_do_not_depend_on_cuts(in_reasoning: bool, rest: str, start: str) -> None:
    text = (OPENING + start + rest).encode()
    context = ParserContext(in_reasoning=in_reasoning)
    outputs = [run(replace(SPEC, tools=(Tool("f"),)), cut(text, size), context=context) for size in SIZES]
    assert all(output == outputs[0] for output in outputs)


A, B = ('{"name": "f", "arguments": {"c": "A"}}', '{"name": "f", "arguments": {"c": "B"}}')
UNKNOWN = '{"name": "g", "arguments": {}}'
SEVERAL = [
    (f"\n[{A},{B}]\n", 2, ""),
    (f" [ {A} ,\n {B} , ] ", 2, ""),
    (f"[{A}]", 1, ""),
    (f"{A}\n{B}", 2, ""),
    (f"{A}{B}", 2, ""),
    (f"\n{A},\n{B}\n", 2, ""),
    (f"{A} {A} {B}", 3, ""),
    (f"[{A} {B}", 2, ""),
    (f"[{A}, {B}]\nand", 2, "and"),
    (f"{A} {UNKNOWN} {B}", 2, UNKNOWN),
    (f"[{UNKNOWN}, {B}]", 1, f"{OPENING}[{UNKNOWN}"),
    (f"{A} {{]", 1, "{]"),
    (f"{A}, and", 1, ", and"),
    (f"{A}]", 1, "]"),
    (f"[{UNKNOWN}, {UNKNOWN}]", 0, f"{OPENING}[{UNKNOWN}, {UNKNOWN}]{CLOSING}"),
    ("[]", 0, f"{OPENING}[]{CLOSING}"),
    ("[ ", 0, f"{OPENING}[ {CLOSING}"),
    (f"[[{A}]]", 0, f"{OPENING}[[{A}]]{CLOSING}"),
]


@pytest.mark.parametrize(("inside", "num_calls", "content"), SEVERAL)
@pytest.mark.parametrize("size", SIZES)
def test_several_calls_after_one_tag(inside: str, num_calls: int, content: str, size: int) -> None:
    output = run_text(replace(SPEC, tools=(Tool("f"),)), f"{OPENING}{inside}{CLOSING}", size)
    assert len(output.calls) == len(set(output.ids)) == num_calls
    assert output.content == content
    if num_calls == 2:
        assert [json.loads(arguments)["c"] for _, arguments in output.calls] == ["A", "B"]


SPACES = [
    ("Sure. {} done", "Sure. done"),
    ("Sure.\n\n{}\n\ndone\n", "Sure.\n\ndone\n"),
    ("Sure. {}\n{} done", "Sure. done"),
    ("Sure. {} \n", "Sure. "),
    ("Sure.\n{}", "Sure.\n"),
    (" \n{}\n{}", ""),
    ("Sure.{} done", "Sure.done"),
    ("Sure. {}done", "Sure. done"),
    ("\n{} done", "done"),
    (" \n {} \n {} ", ""),
    ("a {} b\n{} c", "a b\nc"),
    ("a {} <tool_call>x", "a <tool_call>x"),
    ("a {} <tool", "a <tool"),
    ("a \n<tool_call>x</tool_call> {} b", "a \n<tool_call>x</tool_call> b"),
]


@pytest.mark.parametrize(("text", "content"), SPACES)
@pytest.mark.parametrize("size", SIZES)
def test_white_space_next_to_a_call_stays_on_one_side(text: str, content: str, size: int) -> None:
    assert run_text(SPEC, text.replace("{}", call_with("x")), size).content == content


def test_failures_are_counted() -> None:
    assert run_text(SPEC, f"{OPENING}x{CLOSING} {OPENING}{{}}{CLOSING} {OPENING}").num_failures == 3
    assert run_text(SPEC, f"{CLOSING} <tool> {call_with('x')}").num_failures == 0


def test_ids_are_random() -> None:
    ids = {identifier for _ in range(50) for identifier in run_text(SPEC, call_with("x") * 2).ids}
    assert len(ids) == 100


def test_tags_that_are_special_tokens() -> None:
    inside = b'{"name": "f"}'
    vocabulary = vocabulary_of(b"a ", inside, special=(OPENING, CLOSING, "<other>"))
    for skip in (True, False):
        spec = replace(SPEC, skip_special_tokens=skip)
        for size in SIZES:
            output = run(spec, cut([0, 2, 1, 3, 0], size), vocabulary=vocabulary)
            assert output.content == "a a "
            assert output.calls == [("f", "{}")]
    stage = Hermes(ParserContext())
    assert list(stage.feed(Content("b\n"))) == [Content("b")]
    assert list(stage.feed(Marker("<other>"))) == [Marker("<other>")]


def test_declared_names_only() -> None:
    stage = Hermes(ParserContext(in_reasoning=True))
    assert [*stage.feed(Content(f'{OPENING}{{"name": "f"}}')), *stage.finish("stop")] == [
        Content(f'{OPENING}{{"name": "f"}}')
    ]


def test_content_is_emitted_at_once() -> None:
    stage = Hermes(ParserContext())
    assert list(stage.feed(Content("Hello <tool"))) == [Content("Hello")]
    assert list(stage.feed(Content("s> x"))) == [Content(" <tools> x")]
    assert BYTES.special  # the vocabulary of the other tests has special tokens that are not tags
