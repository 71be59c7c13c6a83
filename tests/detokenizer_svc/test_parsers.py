from __future__ import annotations

from collections.abc import Iterable

import pytest

from detokenizer_svc import parsers
from detokenizer_svc.deltas import Content, Item, Marker, Reasoning, ReasoningEnd
from detokenizer_svc.parsers import make_parsers
from detokenizer_svc.stage import Chain, FinishReason, ParserContext, Stage
from svclib.errors import InvalidRequest

CONTEXT = ParserContext()


class Channels(Stage):
    """One parser for reasoning and calls: text after its marker is reasoning."""

    markers = frozenset({"<|channel|>"})

    def __init__(self, _context: ParserContext) -> None:
        self._inside = False

    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Marker):
            self._inside = True
            return ()
        return (Reasoning(item.text),) if self._inside and isinstance(item, Content) else (item,)

    def finish(self, reason: FinishReason) -> Iterable[Item]:
        return (Content(f"({reason})"),)


def make_chain(reasoning_parser: str, tool_parser: str, context: ParserContext) -> Chain:
    reasoning, calls = make_parsers(reasoning_parser, tool_parser, context)
    return Chain(calls if reasoning is None else [reasoning, *calls])


def names(chain: Chain) -> list[str]:
    return [type(stage).__name__ for stage in chain.stages]


def test_the_stages_for_two_names() -> None:
    assert names(make_chain("", "", CONTEXT)) == []
    assert names(make_chain("think", "", CONTEXT)) == ["Think"]
    assert names(make_chain("", "hermes", CONTEXT)) == ["Hermes"]
    assert names(make_chain("think", "hermes", CONTEXT)) == ["Think", "CallsInReasoning", "Hermes"]


def test_one_parser_for_reasoning_and_calls_is_one_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsers, "REASONING_PARSERS", {"channels": Channels})
    monkeypatch.setattr(parsers, "TOOL_PARSERS", {"channels": Channels})
    chain = make_chain("channels", "channels", CONTEXT)
    assert names(chain) == ["Channels"]
    assert chain.markers == {"<|channel|>"}
    items: list[Item] = [Content("a"), Marker("<|channel|>"), Content("b")]
    assert chain.feed(items) == [Content("a"), Reasoning("b")]


@pytest.mark.parametrize(("reasoning", "tools"), [("Think", ""), ("", "Hermes"), ("hermes", ""), ("think", "x")])
def test_unknown_parsers_are_refused_and_the_supported_ones_are_named(reasoning: str, tools: str) -> None:
    with pytest.raises(InvalidRequest, match=r"supported: (think|hermes)"):
        make_chain(reasoning, tools, CONTEXT)


def test_text_held_by_a_stage_passes_through_the_stages_after_it() -> None:
    chain = Chain([Channels(CONTEXT), *make_chain("", "hermes", CONTEXT).stages])
    assert chain.feed([Content("x <tool")]) == [Content("x")]
    assert chain.finish([Content("_c")], "length") == [Content(" <tool_c(length)")]


def test_failures_of_all_stages_count() -> None:
    chain = make_chain("think", "hermes", CONTEXT)
    chain.feed([Content("<tool_call>x<tool_call>")])
    chain.finish([ReasoningEnd()], "stop")
    assert chain.num_failures == 2
