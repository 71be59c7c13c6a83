from __future__ import annotations

import pytest

from modelfiles.simulated import CHAT_TEMPLATE
from tests.tokenizer_svc import templates
from tokenizer_svc.formats import reasoning_format, tool_format


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHAT_TEMPLATE, "hermes"),
        (r"""{{- '<tool_call>\n{"name": "' }}{{- name }}{{- '", "arguments": ' }}""", "hermes"),
        (r'{{- "<tool_call>\n{\"name\": <name>, \"arguments\": <args>}\n</tool_call>" }}', "hermes"),
        ("<tool_call>\n<function={{ name }}>\n<parameter={{ key }}>", "qwen3_coder"),
        ("<tool_call>{{ name }}<arg_key>{{ key }}</arg_key>", "glm45"),
        ("<|channel|>commentary to=functions.f<|message|>", "harmony"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>\n```json\n", "deepseek_v3"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>", "deepseek_v31"),
        ("[TOOL_CALLS]{{ name }}", "mistral"),
        ("""<|start_header_id|>assistant {"name": "f", "parameters": {}}""", "llama3_json"),
        ("<|tool_calls_section_begin|>", "kimi_k2"),
        (templates.CHATML, ""),
        ("<tool_call>{{ something }}</tool_call>", ""),
        ("", ""),
    ],
)
def test_tool_formats(template: str, expected: str) -> None:
    assert tool_format(template) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (templates.THINKS, "think"),
        (templates.OPENS_THINKING, "think"),
        ("{{ content.split('</think>')[-1] }}", "think"),
        (CHAT_TEMPLATE, "think"),
        ("[THINK]{{ x }}[/THINK]", "mistral"),
        ("<seed:think>", "seed_oss"),
        ("<|channel|>analysis<|message|>", "harmony"),
        ("{{ '<|START_THINKING|>' + x + '<|END_THINKING|>' }}", "cohere_command"),
        ("<mm:think>", "minimax_m3"),
        ("<longcat_think>", "longcat"),
        ("◁think▷", "kimi_vl"),
        ("<|begin_of_thought|>", "openthoughts"),
        ("<|inner_prefix|>", "apertus"),
        ("[BEGIN FINAL RESPONSE]", "apriel"),
        ("Write 'Here is my thought process:' first", "granite"),
        ("<thought>", "exaone_deep"),
        ("<|channel>thought", "gemma4"),
        (templates.CHATML, ""),
        ("I think", ""),
        ("a thought", ""),
    ],
)
def test_reasoning_formats(template: str, expected: str) -> None:
    assert reasoning_format(template) == expected
