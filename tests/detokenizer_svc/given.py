"""Shared by the tests: small vocabularies, ways to cut an output, and joined outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from detokenizer_svc.deltas import Content, Delta, Reasoning, ToolCallPiece
from detokenizer_svc.formatter import Ending, EngineEnd, FormatSpec, Formatter
from detokenizer_svc.stage import FinishReason, ParserContext, Tool
from detokenizer_svc.vocabulary import Vocabulary
from modelfiles.token_table import simulated_table, table_of

WholeT = TypeVar("WholeT", str, bytes, list[int], range)

BYTES = Vocabulary.of_table(simulated_table())
"""One token for each byte."""
SIZES = (1, 2, 3, 5, 8, 10**9)
"""Sizes of the pieces of a cut output."""
WEATHER = Tool("get_weather", '{"type": "object", "properties": {"city": {"type": "string"}}}')


def from_json(description: dict[str, Any], config: dict[str, Any]) -> Vocabulary:
    """The vocabulary of the contents of ``tokenizer.json`` and ``tokenizer_config.json``. Raises ``ModelFileError``."""
    return Vocabulary.of_table(table_of(description, config))


@dataclass
class Output:
    """A joined output."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of each call."""
    ending: Ending | None = None
    ids: list[str] = field(default_factory=list, compare=False)
    deltas: list[Delta] = field(default_factory=list, compare=False)
    num_tokens: int = 0
    num_failures: int = field(default=0)

    def add(self, delta: Delta) -> None:
        self.deltas.append(delta)
        if isinstance(delta, ToolCallPiece):
            self._add_call(delta)
            return
        assert delta.text
        if isinstance(delta, Content):
            self.content += delta.text
        else:
            self.reasoning += delta.text

    def _add_call(self, piece: ToolCallPiece) -> None:
        if piece.id or piece.name:
            assert piece.index == len(self.calls)
            assert piece.id.startswith("call_")
            assert piece.id not in self.ids
            assert piece.name
            self.ids.append(piece.id)
            self.calls.append((piece.name, piece.arguments))
        else:
            assert piece.index == len(self.calls) - 1
            name, arguments = self.calls[-1]
            self.calls[-1] = (name, arguments + piece.arguments)


def cut(whole: WholeT, size: int) -> Iterator[WholeT]:
    """Pieces of equal size."""
    return (whole[start : start + size] for start in range(0, len(whole), size))


def cut_by(whole: WholeT, sizes: Iterable[int]) -> Iterator[WholeT]:
    """Pieces of the given sizes, then the rest; a size may be 0."""
    start = 0
    for size in sizes:
        yield whole[start : start + size]
        start += size
    yield whole[start:]


def run(
    spec: FormatSpec,
    pieces: Iterable[Sequence[int]],
    *,
    vocabulary: Vocabulary = BYTES,
    reason: FinishReason = "stop",
    by_token: bool = False,
    context: ParserContext | None = None,
) -> Output:
    """Feed the pieces to a new formatter; the last one ends the choice."""
    formatter = Formatter(vocabulary, spec, context)
    output = Output()
    pieces = [list(piece) for piece in pieces] or [[]]
    for number, piece in enumerate(pieces, 1):
        end = EngineEnd(reason, by_token) if number == len(pieces) else None
        formatted = formatter.feed(piece, end)
        output.num_tokens += formatted.num_tokens
        for delta in formatted.deltas:
            output.add(delta)
        if formatted.ending:
            output.ending = formatted.ending
            break
    assert output.ending is not None
    assert output.ending.completion_tokens == output.num_tokens
    output.num_failures = formatter.num_parse_failures
    return output


def run_text(spec: FormatSpec, text: str, size: int = 10**9, reason: FinishReason = "stop") -> Output:
    """Format a text given byte by byte, ``size`` bytes a piece."""
    return run(spec, cut(text.encode(), size), reason=reason)


def vocabulary_of(*pieces: bytes, special: Sequence[str] = ()) -> Vocabulary:
    """Tokens with ids in order, then the special tokens."""
    tokens = dict(enumerate([*pieces, *(spelling.encode() for spelling in special)]))
    return Vocabulary.of(tokens, special=range(len(pieces), len(tokens)))


def reasoning(deltas: Iterable[Delta]) -> str:
    """The reasoning in the deltas, joined."""
    return "".join(delta.text for delta in deltas if isinstance(delta, Reasoning))
