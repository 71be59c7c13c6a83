from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from svclib.errors import InvalidRequest, Unsupported
from tests.tokenizer_svc import templates
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.adapt import adapt_messages, adapt_tools
from tokenizer_svc.capabilities import Capabilities, NullContent
from tokenizer_svc.conversation import Message, Tool, ToolCall
from tokenizer_svc.probe import probe

EVERYTHING = replace(probe(compiled(templates.WITH_TOOLS), {}), developer_role=True, content_parts=True)
CALL = ToolCall("c1", "f", '{"city": "Zürich"}')
USER = Message("user", "hi")


def adapted(*messages: Message, **abilities: Any) -> list[dict[str, Any]]:
    return adapt_messages(messages, replace(EVERYTHING, **abilities))


def refusal(*messages: Message, **abilities: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        adapted(*messages, **abilities)
    return caught.value


def test_messages_that_need_no_adaptation_are_unchanged() -> None:
    assert adapted(Message("system", "s"), Message("user", "u", name="n"), Message("assistant", "a")) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u", "name": "n"},
        {"role": "assistant", "content": "a"},
    ]


def test_roles_in_the_order_of_the_keys_that_templates_print() -> None:
    (turn,) = adapted(Message("assistant", "a", tool_calls=(CALL,), reasoning_content="r"))
    assert list(turn) == ["role", "content", "reasoning_content", "reasoning", "thinking", "tool_calls"]


# Roles


def test_developer_becomes_system_for_a_template_without_that_role() -> None:
    assert adapted(Message("developer", "d"), USER, developer_role=False)[0] == {"role": "system", "content": "d"}
    assert adapted(Message("developer", "d"), USER)[0] == {"role": "developer", "content": "d"}


def test_a_later_developer_turn_is_a_system_turn() -> None:
    turns = adapted(Message("developer", "d"), USER, Message("developer", "e"), USER)
    assert [turn["role"] for turn in turns] == ["developer", "user", "system", "user"]


@pytest.mark.parametrize("role", ["System", "", "function", "ipython", "user\n"])
def test_an_unknown_role(role: str) -> None:
    error = refusal(USER, Message(role, "x"))
    assert error.param == "messages[1].role"


def test_system_text_is_merged_into_the_first_user_turn_without_a_system_role() -> None:
    turns = adapted(
        Message("system", "s"),
        Message("developer", ("d", "e")),
        Message("user", ("u", "v")),
        Message("assistant", "a"),
        system_role=False,
        late_system=False,
        developer_role=False,
    )
    assert turns == [{"role": "user", "content": "s\n\nd\ne\n\nu\nv"}, {"role": "assistant", "content": "a"}]


def test_a_template_may_support_developer_turns_only() -> None:
    abilities = {"system_role": False, "late_system": False}
    assert adapted(Message("developer", "d"), USER, **abilities)[0] == {"role": "developer", "content": "d"}
    assert adapted(Message("developer", "d"), Message("system", "s"), USER, **abilities)[0] == {
        "role": "developer",
        "content": "d\n\ns",
    }
    assert adapted(Message("system", "s"), USER, **abilities) == [{"role": "user", "content": "s\n\nhi"}]


@pytest.mark.parametrize("following", [(), (Message("assistant", "a"),)])
def test_system_text_without_a_user_turn_to_merge_into(following: tuple[Message, ...]) -> None:
    error = refusal(Message("system", "s"), *following, system_role=False, late_system=False)
    assert isinstance(error, Unsupported)
    assert error.param == "messages[0].role"


def test_system_turns_at_the_start_are_merged_if_only_one_is_supported() -> None:
    turns = adapted(Message("system", "s"), Message("system", "t"), USER, late_system=False)
    assert turns == [{"role": "system", "content": "s\n\nt"}, {"role": "user", "content": "hi"}]


def test_one_system_turn_at_the_start_keeps_its_name() -> None:
    turns = adapted(Message("system", "s", name="n"), USER, late_system=False)
    assert turns[0] == {"role": "system", "content": "s", "name": "n"}


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("system_role", [True, False])
def test_a_late_system_turn_is_refused_where_it_would_be_lost(role: str, system_role: bool) -> None:
    error = refusal(USER, Message(role, "s"), USER, system_role=system_role, late_system=False)
    assert error.param == "messages[1].role"


def test_tool_results_are_refused_where_they_would_be_lost() -> None:
    error = refusal(USER, Message("assistant", "a"), Message("tool", "x"), tool_results=False)
    assert error.param == "messages[2].role"
    assert isinstance(error, Unsupported)


# Content


def test_parts_are_joined_by_line_breaks_for_a_template_that_needs_a_string() -> None:
    assert adapted(Message("user", ("A", "B")), content_parts=False)[0]["content"] == "A\nB"


def test_parts_are_kept_for_a_template_that_reads_them() -> None:
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    assert adapted(Message("user", ("A", "B")))[0]["content"] == parts


@pytest.mark.parametrize("role", ["system", "assistant", "tool"])
def test_parts_of_other_roles_are_joined(role: str) -> None:
    assert adapted(USER, Message(role, ("A", "B")))[1]["content"] == "A\nB"


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_strings_become_parts_for_a_template_that_reads_only_parts(role: str) -> None:
    turn = adapted(USER, Message(role, "A"), content_strings=False)[1]
    assert turn["content"] == [{"type": "text", "text": "A"}]


@pytest.mark.parametrize("role", ["system", "developer", "user", "tool"])
def test_missing_content(role: str) -> None:
    assert refusal(Message(role, None)).param == "messages[0].content"


def test_empty_content_is_content() -> None:
    assert adapted(Message("user", ""), Message("user", ()))[0]["content"] == ""


def test_missing_content_of_an_assistant_without_calls_is_empty() -> None:
    assert adapted(USER, Message("assistant", None))[1] == {"role": "assistant", "content": ""}


def test_reasoning_is_passed_under_all_its_names() -> None:
    turn = adapted(USER, Message("assistant", "a", reasoning_content="r"))[1]
    assert turn["reasoning_content"] == turn["reasoning"] == turn["thinking"] == "r"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message("user", "a", tool_calls=(CALL,)), "tool_calls"),
        (Message("tool", "a", reasoning_content="r"), "reasoning_content"),
    ],
)
def test_fields_of_assistant_messages_only(message: Message, field: str) -> None:
    assert refusal(message).param == f"messages[0].{field}"


# Calls


def test_a_call_has_its_arguments_as_an_object() -> None:
    (call,) = adapted(USER, Message("assistant", "a", tool_calls=(CALL,)))[1]["tool_calls"]
    assert call == {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"city": "Zürich"}}}


def test_a_call_has_its_arguments_as_the_clients_text() -> None:
    odd = ToolCall("c1", "f", '{"a":1.0,  "a":2}')
    turn = adapted(USER, Message("assistant", "a", tool_calls=(odd,)), arguments_as_object=False)[1]
    assert turn["tool_calls"][0]["function"]["arguments"] == '{"a":1.0,  "a":2}'


@pytest.mark.parametrize("arguments", ['{"a":', "[1,2]", "null", "", '{"a": NaN}'])
@pytest.mark.parametrize("abilities", [{}, {"tool_calls": False}])
def test_arguments_that_are_no_object(arguments: str, abilities: dict[str, Any]) -> None:
    error = refusal(USER, Message("assistant", None, tool_calls=(CALL, ToolCall("c2", "g", arguments))), **abilities)
    assert error.param == "messages[1].tool_calls[1].function.arguments"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (NullContent.ABSENT, {"role": "assistant"}),
        (NullContent.NONE, {"role": "assistant", "content": None}),
        (NullContent.EMPTY, {"role": "assistant", "content": ""}),
    ],
)
def test_missing_content_beside_calls(form: NullContent, expected: dict[str, Any]) -> None:
    turn = adapted(USER, Message("assistant", None, tool_calls=(CALL,)), null_content=form)[1]
    assert turn.pop("tool_calls")
    assert turn == expected


def test_empty_text_beside_calls_is_none_for_a_template_that_checks_for_none() -> None:
    message = Message("assistant", "", tool_calls=(CALL,))
    assert adapted(USER, message, null_content=NullContent.NONE)[1]["content"] is None
    assert adapted(USER, message)[1]["content"] == ""


def test_text_beside_calls_gets_its_own_turn_if_one_of_them_would_be_lost() -> None:
    turns = adapted(
        USER,
        Message("assistant", "a", tool_calls=(CALL,), reasoning_content="r"),
        text_beside_calls=False,
        null_content=NullContent.NONE,
    )
    assert [turn["content"] for turn in turns] == ["hi", "a", None]
    assert "tool_calls" not in turns[1]
    assert turns[1]["reasoning_content"] == "r"
    assert turns[2]["tool_calls"]


def test_calls_become_text_for_a_template_without_tool_calls() -> None:
    turns = adapted(
        USER,
        Message("assistant", "Wait.", tool_calls=(CALL, ToolCall("c2", "g", "{}"))),
        Message("assistant", None, tool_calls=(CALL,)),
        tool_calls=False,
    )
    first, second = (
        '<tool_call>\n{"name": "f", "arguments": {"city": "Zürich"}}\n</tool_call>',
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
    )
    assert turns[1] == {"role": "assistant", "content": f"Wait.\n{first}\n{second}"}
    assert turns[2] == {"role": "assistant", "content": first}


# Results


CALLS = Message("assistant", None, tool_calls=(CALL, ToolCall("c2", "g", "{}")))


def names(*messages: Message, **abilities: Any) -> list[Any]:
    return [turn.get("name") for turn in adapted(*messages, **abilities) if turn["role"] == "tool"]


@pytest.mark.parametrize("abilities", [{}, {"tool_calls": False}, {"text_beside_calls": False}])
def test_a_result_gets_the_name_of_its_function(abilities: dict[str, Any]) -> None:
    first, second = Message("tool", "1", tool_call_id="c1"), Message("tool", "2", tool_call_id="c2")
    assert names(USER, CALLS, first, second, **abilities) == ["f", "g"]
    assert names(USER, CALLS, second, first, **abilities) == ["g", "f"]
    assert names(USER, replace(CALLS, content="Wait."), second, **abilities) == ["g"]
    assert names(USER, CALLS, replace(first, name=""), **abilities) == ["f"]


def test_a_given_name_is_kept() -> None:
    assert names(USER, CALLS, Message("tool", "1", name="mine", tool_call_id="c1")) == ["mine"]


def test_the_same_id_in_a_later_turn_is_another_call() -> None:
    again = Message("assistant", None, tool_calls=(ToolCall("c1", "h", "{}"),))
    result = Message("tool", "1", tool_call_id="c1")
    assert names(USER, CALLS, result, again, result) == ["f", "h"]


def test_a_result_without_a_call_gets_no_name() -> None:
    for call_id in (None, "", "c3"):
        assert names(USER, CALLS, Message("tool", "1", tool_call_id=call_id)) == [None]


# Tools


def tools(*given: Tool, **abilities: Any) -> list[dict[str, Any]] | None:
    return adapt_tools(given, replace(EVERYTHING, **abilities))


def test_no_tools_are_none() -> None:
    assert tools() is None
    assert tools(tools=False) is None


def test_tools_in_the_form_that_templates_know() -> None:
    given = Tool("f", "does f", '{"type": "object"}', strict=True)
    function = {"name": "f", "description": "does f", "parameters": {"type": "object"}, "strict": True}
    assert tools(given, Tool("g")) == [
        {"type": "function", "function": function},
        {"type": "function", "function": {"name": "g"}},
    ]


def test_missing_fields_of_a_tool_are_filled_in_if_the_template_needs_them() -> None:
    filled = {"description": "", "parameters": {"type": "object", "properties": {}}, "name": "g"}
    assert tools(Tool("g"), bare_tools=False) == [{"type": "function", "function": filled}]


def test_tools_that_the_template_does_not_support() -> None:
    with pytest.raises(Unsupported) as caught:
        tools(Tool("f"), tools=False)
    assert caught.value.param == "tools"


def test_parameters_that_are_no_object() -> None:
    with pytest.raises(InvalidRequest) as caught:
        tools(Tool("f"), Tool("g", parameters="[]"))
    assert caught.value.param == "tools[1].function.parameters"


def test_capabilities_are_immutable() -> None:
    assert isinstance(EVERYTHING, Capabilities)
    with pytest.raises(AttributeError):
        EVERYTHING.tools = False  # type: ignore[misc]
