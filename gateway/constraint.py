"""What a request demands of the output's form, as one constraint for the engine."""

from __future__ import annotations

from gateway.call_grammar import CallGrammar
from gateway.chat import ChatRequest, Tool
from gateway.peers import CallSyntax, Constraint


def asked_by(request: ChatRequest) -> str:
    """The client's field that asks for a constraint; empty: none does."""
    if request.tools and (request.tool_choice.is_forced or request.tool_choice.allowed is not None):
        return "tool_choice"
    if request.response_format is not None:
        return "response_format"
    return _asked_by_tools(request)


def constraint_of(request: ChatRequest, syntax: CallSyntax | None) -> Constraint | None:
    """None: any output will do. ``syntax`` is how calls are written, and is there if tools are."""
    if not asked_by(request):
        return None
    if request.tools:
        assert syntax is not None
        return Constraint("grammar", _grammar(request, CallGrammar(syntax, _allowed(request), _several(request))))
    assert request.response_format is not None
    schema = request.response_format.schema_json
    return Constraint("json_object") if schema is None else Constraint("json_schema", schema)


def _asked_by_tools(request: ChatRequest) -> str:
    if not request.tools:
        return ""
    if not request.parallel_tool_calls:
        return "parallel_tool_calls"
    strict = next((number for number, tool in enumerate(request.tools) if tool.strict), None)
    return "" if strict is None else f"tools[{strict}].function.strict"


def _grammar(request: ChatRequest, calls: CallGrammar) -> str:
    """A forced call leaves no content, so that a format of the content has nothing to say then."""
    if request.tool_choice.is_forced:
        return calls.only_calls()
    if request.response_format is not None:
        return calls.calls_or_json(request.response_format.schema_json)
    return calls.calls_in_text()


def _allowed(request: ChatRequest) -> list[Tool]:
    allowed = request.tool_choice.allowed
    return [tool for tool in request.tools if allowed is None or tool.name in allowed]


def _several(request: ChatRequest) -> bool:
    return request.parallel_tool_calls and request.tool_choice.mode != "named"
