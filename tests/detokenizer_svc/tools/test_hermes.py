from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.deltas import Content, Marker, ToolCallPiece
from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.stage import ParserContext
from detokenizer_svc.tools.hermes import CLOSING, OPENING, Hermes
from tests.detokenizer_svc.given import BYTES, SIZES, Output, cut, cut_by, run, run_text, vocabulary_of
from tests.detokenizer_svc.test_json_value import json_values

SPEC = FormatSpec(tool_parser="hermes")
EAGER = ParserContext(stream_arguments_after=0)

names = st.text(min_size=1, max_size=10).filter(lambda name: name.encode("utf-8", "replace").decode() == name)
arguments = st.dictionaries(st.text(max_size=6), json_values, max_size=4)
spaces = st.text(alphabet=" \n\t", max_size=3)
plain = st.text(alphabet="ab<>/ \n_calltoé", max_size=12).filter(lambda text: "<t" not in text and "</t" not in text)
sizes = st.lists(st.integers(0, 9), max_size=60)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, str]]]:
    """Text with calls, what of it is content, and the calls with their arguments as written."""
    text = content = draw(plain)
    calls = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(names)
        raw = json.dumps(draw(arguments), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 0, 2])))
        raw = raw.encode("utf-8", "replace").decode()
        members = draw(st.permutations([f'"name": {json.dumps(name)}', f'"arguments": {raw}']))
        after = draw(plain)
        text += f"{OPENING}{draw(spaces)}{{{', '.join(members)}}}{draw(spaces)}{CLOSING}{after}"
        content = content.rstrip(" \n") + after.lstrip(" \n")
        calls.append((name, raw))
    return text, content, calls


@given(outputs(), sizes, st.sampled_from([EAGER, ParserContext(), ParserContext(stream_arguments_after=None)]))
def test_calls_between_text_in_any_pieces(
    made: tuple[str, str, list[tuple[str, str]]], sizes: list[int], context: ParserContext
) -> None:
    text, content, calls = made
    output = run(SPEC, cut_by(text.encode(), sizes), context=context)
    assert output.calls == calls
    assert "".join(output.content.split()) == "".join(content.split())
    assert output.num_failures == 0
    assert output.ending is not None
    assert output.ending.finish_reason == "tool_calls"


@given(outputs(), st.data())
def test_an_output_cut_anywhere_gives_only_whole_calls(
    made: tuple[str, str, list[tuple[str, str]]], data: st.DataObject
) -> None:
    text, _, calls = made
    begin = text.encode()[: data.draw(st.integers(0, len(text.encode())))].decode(errors="ignore")
    output = run_text(SPEC, begin, size=3, reason="length")
    assert output.calls == calls[: len(output.calls)]
    assert output == run_text(SPEC, begin, reason="length")
    if not output.calls:
        assert output.content == begin


def call_with(value: str) -> str:
    return f'{OPENING}\n{{"name": "write", "arguments": {{"text": "{value}"}}}}\n{CLOSING}'


def pieces_of(output: Output) -> list[ToolCallPiece]:
    return [delta for delta in output.deltas if isinstance(delta, ToolCallPiece)]


def test_a_short_call_is_given_when_it_is_whole() -> None:
    first, second = pieces_of(run_text(SPEC, call_with("x" * 900), size=1))
    assert (first.name, first.arguments) == ("write", "")
    assert (second.id, second.name) == ("", "")
    assert json.loads(second.arguments) == {"text": "x" * 900}


def test_a_long_call_is_streamed() -> None:
    first, *others = pieces_of(run_text(SPEC, call_with("x" * 2000), size=1))
    assert first.name == "write"
    assert len(others) > 900
    assert json.loads("".join(piece.arguments for piece in others)) == {"text": "x" * 2000}


@pytest.mark.parametrize(("length", "num_pieces"), [(21, 2), (22, 3)])
def test_the_length_from_which_a_call_is_streamed(length: int, num_pieces: int) -> None:
    text = call_with("x" * (length - len('{"text": ""}')))
    context = ParserContext(stream_arguments_after=20)
    assert len(pieces_of(run(SPEC, cut(text.encode(), 1), context=context))) == num_pieces


def test_nothing_is_streamed_before_the_name_is_known() -> None:
    text = f'{OPENING}{{"arguments": {{"text": "{"x" * 2000}"}}, "name": "write"}}{CLOSING}'
    assert len(pieces_of(run_text(SPEC, text, size=1))) == 2


def test_a_streamed_call_that_breaks_stays_open_and_the_rest_is_content() -> None:
    text = f'{OPENING}{{"name": "f", "arguments": {{"a": 1, b}}}}\n{CLOSING}\nSo.'
    for size in SIZES:
        output = run(SPEC, cut(text.encode(), size), context=EAGER)
        assert output.calls == [("f", '{"a": 1, ')]
        assert output.content == "b}}So."
        assert output.num_failures == 1


@pytest.mark.parametrize("limit", [0, 1, 7, 8, 9, 10, 20])
@pytest.mark.parametrize("rest", ["", " b}}", ' "b": 2}', ' "b": 2}}', ' "b": 2}, "name": "g"}', ' "b": 2}, x'])
@pytest.mark.parametrize("start", ['{"name": "f", "arguments": {"a": 1,', '{"arguments": {"a": 1,'])
def test_whether_a_call_is_streamed_does_not_depend_on_cuts(limit: int, rest: str, start: str) -> None:
    text = (OPENING + start + rest).encode()
    context = ParserContext(stream_arguments_after=limit)
    outputs = [run(SPEC, cut(text, size), context=context) for size in SIZES]
    assert all(output == outputs[0] for output in outputs)


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
            assert output.content == "aa "
            assert output.calls == [("f", "{}")]
    stage = Hermes(ParserContext())
    assert list(stage.feed(Content("b\n"))) == [Content("b")]
    assert list(stage.feed(Marker("<other>"))) == [Marker("<other>")]


def test_declared_names_only() -> None:
    stage = Hermes(ParserContext(declared_only=True))
    assert [*stage.feed(Content(f'{OPENING}{{"name": "f"}}')), *stage.finish("stop")] == [
        Content(f'{OPENING}{{"name": "f"}}')
    ]


def test_content_is_given_at_once() -> None:
    stage = Hermes(ParserContext())
    assert list(stage.feed(Content("Hello <tool"))) == [Content("Hello")]
    assert list(stage.feed(Content("s> x"))) == [Content(" <tools> x")]
    assert BYTES.special  # the vocabulary of the other tests has special tokens that are no tags
