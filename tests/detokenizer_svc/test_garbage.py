"""Fragments of every format in any order: nothing raises, nothing is lost, and cuts do not matter."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.reasoning import REASONING_PARSERS
from detokenizer_svc.stage import ParserContext, ReasoningState, Tool
from detokenizer_svc.tools import TOOL_PARSERS
from detokenizer_svc.vocabulary import Vocabulary
from tests.detokenizer_svc.given import Output, cut_by, run, vocabulary_of

TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
PIECES = (
    *TAGS, "<thi", "nk>", "</", "<", ">", "<tool", "_call>", " ", "\n", " \n ", "a", "STOP", "ST", "京", "\ufffd",
    '{"name": "f", "arguments": {"x": [1, "}"]}}', '{"name": "f"', ', "arguments": ', '{"a": 1}', '"<tool_call>"',
    '{"arguments": {"long": "', "xxxxxxxxxxxx", '"}, "name": "g"}', "{", "}", "[", "]", '"', ":", ",", "\\", "\\u", "1",
    "\x01", "null", "tru",
)  # fmt: skip
AS_TEXT = vocabulary_of(*(piece.encode() for piece in PIECES), b"\xf0", b"\x9f\x94", b"\xa5", special=("<eot>",))
AS_SPECIAL = vocabulary_of(*(piece.encode() for piece in PIECES if piece not in TAGS), b"\xf0\x9f", special=TAGS)

specs = st.builds(
    FormatSpec,
    stop=st.sampled_from([(), ("STOP",), ("STOP", "a}"), ("<eot>",), ("a<eot>", "</tool_call>"), ("</think>\n",)]),
    reasoning_parser=st.sampled_from(["", *REASONING_PARSERS]),
    reasoning_state=st.sampled_from(ReasoningState),
    tool_parser=st.sampled_from(["", *TOOL_PARSERS]),
    tools=st.sampled_from([(), (Tool("f"),)]),
    skip_special_tokens=st.booleans(),
    min_tokens=st.integers(0, 6),
    prompt_tail_ids=st.sampled_from([(), (len(PIECES),), (0, 1)]),
)
contexts = st.sampled_from([ParserContext(), ParserContext(in_reasoning=True)])
sizes = st.lists(st.integers(0, 4), max_size=30)


@st.composite
def choices(draw: st.DrawFn) -> tuple[Vocabulary, list[int]]:
    vocabulary = draw(st.sampled_from([AS_TEXT, AS_SPECIAL]))
    return vocabulary, draw(st.lists(st.integers(0, len(vocabulary) - 1), max_size=30))


@given(choices(), specs, contexts, sizes, st.sampled_from(["stop", "length"]), st.booleans())
def test_output_does_not_depend_on_cuts(
    choice: tuple[Vocabulary, list[int]], spec: FormatSpec, context: ParserContext, sizes: list[int], reason: str,
    by_token: bool,
) -> None:  # fmt: skip
    vocabulary, token_ids = choice
    by_token = by_token and bool(token_ids)

    def output(pieces: list[list[int]]) -> Output:
        pieces = [piece for piece in pieces if piece] or [[]]
        return run(spec, pieces, vocabulary=vocabulary, context=context, by_token=by_token, reason=reason)  # type: ignore[arg-type]

    whole = output([token_ids])
    assert output([list(piece) for piece in cut_by(token_ids, sizes)]) == whole
    assert output([[token_id] for token_id in token_ids]) == whole
    assert whole.ending is not None
    assert (whole.ending.finish_reason == "tool_calls") <= bool(whole.calls)
    if whole.ending.finish_reason != "length":
        assert all(isinstance(json.loads(arguments), dict) for _, arguments in whole.calls)
    assert whole.ending.reasoning_tokens <= whole.ending.completion_tokens <= len(token_ids)


def bare(text: str) -> str:
    """A text with white space and tags removed."""
    text = "".join(text.split())
    for tag in TAGS:
        text = text.replace(tag, "")
    return text


@given(choices(), specs, contexts)
def test_text_that_is_not_a_call_is_content(
    choice: tuple[Vocabulary, list[int]], spec: FormatSpec, context: ParserContext
) -> None:
    vocabulary, token_ids = choice
    spec = replace(spec, stop=()) if spec.reasoning_parser else spec
    output = run(spec, [token_ids], vocabulary=vocabulary, context=context)
    without_parsers = FormatSpec(
        stop=spec.stop,
        min_tokens=spec.min_tokens,
        skip_special_tokens=vocabulary is not AS_SPECIAL and spec.skip_special_tokens,
        prompt_tail_ids=spec.prompt_tail_ids,
    )
    raw = run(without_parsers, [token_ids], vocabulary=vocabulary).content
    if not output.calls and not (vocabulary is AS_SPECIAL and spec.stop):
        assert bare(output.reasoning + output.content) == bare(raw)
