"""Declared tools on the wire, for the tokenizer's templates and the detokenizer's parsers."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.generation.request import Tool
from protos.v1 import common_pb2


def tool_definitions(tools: Sequence[Tool]) -> list[common_pb2.ToolDefinition]:
    """The tools as protobuf messages."""
    return [
        common_pb2.ToolDefinition(
            name=tool.name, description=tool.description, parameters_json=tool.parameters_json, strict=tool.strict
        )
        for tool in tools
    ]
