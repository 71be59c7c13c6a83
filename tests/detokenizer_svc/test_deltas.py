from __future__ import annotations

from detokenizer_svc.deltas import Content, Reasoning, ToolCallPiece, coalesce


def test_adjacent_deltas_of_one_kind_are_joined() -> None:
    assert coalesce([Content("a"), Content("b"), Reasoning("c"), Reasoning("d"), Content("e")]) == [
        Content("ab"), Reasoning("cd"), Content("e")
    ]  # fmt: skip


def test_the_first_piece_of_a_call_is_not_joined_with_the_one_before() -> None:
    first, second = ToolCallPiece(0, id="call_1", name="f"), ToolCallPiece(1, id="call_2", name="f")
    pieces = [ToolCallPiece(0, "{"), ToolCallPiece(0, "}")]
    assert coalesce([first, *pieces, second, ToolCallPiece(1, "{}")]) == [
        first, ToolCallPiece(0, "{}"), second, ToolCallPiece(1, "{}")
    ]  # fmt: skip


def test_nothing() -> None:
    assert coalesce([]) == []
