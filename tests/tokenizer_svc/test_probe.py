from __future__ import annotations

from typing import Any

import pytest

from modelfiles.simulated import CHAT_TEMPLATE
from tests.tokenizer_svc import templates
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.capabilities import Capabilities, NullContent
from tokenizer_svc.probe import probe
from tokenizer_svc.template import TemplateFault

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def probed(source: str) -> Capabilities:
    return probe(compiled(source), SPECIAL)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            templates.CHATML,
            {
                "system_role": True,
                "late_system": True,
                "developer_role": False,
                "content_strings": True,
                "content_parts": False,
                "tools": False,
                "tool_calls": False,
                "tool_results": True,
                "strict_alternation": False,
                "writes_bos": False,
                "reasoning": False,
                "generation_opening": "<|im_start|>assistant\n",
                "answer_end": "<|im_end|>\n",
                "call_end": "",
            },
        ),
        (templates.PRINTS_CONTENT, {"content_parts": False, "content_strings": True, "tool_calls": False}),
        (templates.RAISES_FOR_SYSTEM, {"system_role": False, "late_system": False, "generation_opening": ""}),
        (templates.DROPS_SYSTEM, {"system_role": False, "late_system": False}),
        (
            templates.STRICT,
            {
                "system_role": True,
                "late_system": False,
                "strict_alternation": True,
                "writes_bos": True,
                "tool_results": False,
                "generation_opening": "",
                "answer_end": "</s>",
            },
        ),
        (
            templates.LOOPS_ITEMS,
            {"tool_calls": True, "arguments_as_object": True, "null_content": NullContent.ABSENT},
        ),
        (
            templates.ARGUMENTS_AS_TEXT,
            {
                "tool_calls": True,
                "arguments_as_object": False,
                "null_content": NullContent.NONE,
                "text_beside_calls": False,
            },
        ),
        (
            templates.WITH_TOOLS,
            {
                "tools": True,
                "bare_tools": True,
                "tool_calls": True,
                "arguments_as_object": True,
                "text_beside_calls": True,
                "null_content": NullContent.ABSENT,
                "call_end": '"}}</tool_call><|im_end|>\n',
            },
        ),
        (templates.DESCRIBES_TOOLS, {"tools": True, "bare_tools": False}),
        (templates.PARTS_ONLY, {"content_strings": False, "content_parts": True, "system_role": True}),
        (templates.STRING_OR_PARTS, {"content_strings": True, "content_parts": True}),
        (templates.THINKS, {"reasoning": True, "null_content": NullContent.EMPTY}),
        (templates.OPENS_THINKING, {"reasoning": True, "generation_opening": "Assistant: <think>\n"}),
        (templates.FIRST_SYSTEM_ONLY, {"system_role": True, "late_system": False}),
        (templates.DEVELOPER_FIRST, {"system_role": True, "developer_role": True, "late_system": False}),
        (
            CHAT_TEMPLATE,
            {
                "system_role": True,
                "late_system": True,
                "tools": True,
                "bare_tools": True,
                "tool_calls": True,
                "tool_results": True,
                "arguments_as_object": True,
                "text_beside_calls": True,
                "reasoning": True,
            },
        ),
    ],
)
def test_capabilities_of_templates(source: str, expected: dict[str, Any]) -> None:
    found = probed(source)
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_form_of_missing_content_that_prints_none_is_skipped() -> None:
    source = (
        "{% for message in messages %}{{ message.role }}: {{ message.content if 'content' in message else none }}"
        "{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}{% endfor %}"
    )
    assert probed(source).null_content is NullContent.EMPTY


def test_arguments_printed_as_python_do_not_count_as_shown() -> None:
    arguments = "{{ call.function.name }}{{ call.function.arguments }}"
    found = probed(templates.WITH_TOOLS.replace("{{ call.function | tojson }}", arguments))
    assert found.tool_calls
    assert not found.arguments_as_object


def test_only_a_template_that_names_developers_has_them() -> None:
    assert "<|im_start|>" in templates.CHATML
    assert not probed(templates.CHATML).developer_role
    assert probed(templates.CHATML + "{# developer #}").developer_role


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ raise_exception('never') }}",
        "nothing of the conversation",
        "{{ messages[0].missing.content }}",
    ],
)
def test_a_template_that_cannot_render_one_user_message(source: str) -> None:
    with pytest.raises(TemplateFault, match="cannot render a conversation of one user message"):
        probe(compiled(source), {})


@pytest.mark.parametrize("condition", ["true", "tools", "messages | length > 1", "messages[0].role == 'system'"])
def test_a_template_that_exceeds_a_limit_is_not_probed_further(condition: str) -> None:
    source = f"{{% if {condition} %}}{{{{ 'a' * 2000 }}}}{{% endif %}}{templates.WITH_TOOLS}"
    template = compiled(source, max_chars=1000)
    with pytest.raises(
        TemplateFault, match="cannot render a small conversation: the chat template wrote more than 1000"
    ):
        probe(template, SPECIAL)
