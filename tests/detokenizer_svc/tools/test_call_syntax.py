"""Calls written in a format's call syntax are parsed by its parser."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.formatter import FormatSpec
from detokenizer_svc.tools import CALL_SYNTAXES, TOOL_PARSERS
from tests.detokenizer_svc.given import run_text
from tests.detokenizer_svc.test_json_value import json_values

names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
calls = st.lists(
    st.tuples(names, st.dictionaries(st.text(max_size=6), json_values, max_size=4)), min_size=1, max_size=3
)


def test_syntaxes_belong_to_parsers() -> None:
    assert set(CALL_SYNTAXES) <= set(TOOL_PARSERS)


@pytest.mark.parametrize("parser", CALL_SYNTAXES)
@given(calls, st.integers(1, 40))
def test_written_calls_are_parsed(parser: str, made: list[tuple[str, Any]], size: int) -> None:
    syntax = CALL_SYNTAXES[parser]
    written = [(name, json.dumps(arguments, ensure_ascii=True)) for name, arguments in made]
    text = syntax.separator.join(syntax.call(name, arguments) for name, arguments in written)
    output = run_text(FormatSpec(tool_parser=parser), text, size)
    assert output.calls == written
    assert output.content == ""
    assert output.num_failures == 0
