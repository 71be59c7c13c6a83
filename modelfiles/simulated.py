"""The simulated model's tokenizer and chat template.

One token for each byte, then the control tokens. The template is ChatML with Hermes tool calls, as in Qwen3:
``enable_thinking: false`` closes the reasoning in the prompt, ``thinking: true`` starts the output inside reasoning.
"""

from __future__ import annotations

from typing import Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from modelfiles.token_spelling import byte_alphabet
from protos import simulated

CHAT_TEMPLATE: Final = r"""
{%- set has_system = messages[0].role == 'system' %}
{%- set system = messages[0].content if has_system else 'You are a helpful assistant.' %}
{{- '<|im_start|>system\n' + system }}
{%- if tools %}
    {{- '\n\n# Tools\n\nYou may call one or more functions to assist with the user query.' }}
    {{- '\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' + tool | tojson }}
    {%- endfor %}
    {{- '\n</tools>\n\nFor each function call, return a json object with function name and arguments' }}
    {{- ' within <tool_call></tool_call> XML tags:\n<tool_call>\n' }}
    {{- '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {%- if loop.previtem is not defined or loop.previtem.role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.nextitem is not defined or loop.nextitem.role != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if message.reasoning_content %}
            {{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls %}
            {{- '\n' if message.content or not loop.first }}
            {{- '<tool_call>\n{"name": ' + call.function.name | tojson }}
            {{- ', "arguments": ' + call.function.arguments | tojson + '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif not (loop.first and has_system) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- elif thinking %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}
"""


def simulated_tokenizer() -> Tokenizer:
    """The tokenizer of ``protos.simulated``."""
    tokenizer = Tokenizer(models.BPE(vocab=byte_alphabet(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in simulated.CONTROL_TOKENS])
    return tokenizer
