"""Small chat templates, each with one peculiarity of a real one."""

from __future__ import annotations

from typing import Final

CHATML: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

PRINTS_CONTENT: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

RAISES_FOR_SYSTEM: Final = (
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
)

DROPS_SYSTEM: Final = (
    "{% for message in messages if message.role != 'system' %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
)

STRICT: Final = (
    "{{ bos_token }}"
    "{% if messages[0].role == 'system' %}"
    "{% set system = messages[0].content %}{% set turns = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
    "{% for message in turns %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}"
    "{% if message.role == 'user' %}"
    "{{ '[INST] ' + (system + '\n\n' if loop.first and system else '') + message.content + ' [/INST]' }}"
    "{% else %}{{ message.content + eos_token }}{% endif %}"
    "{% endfor %}"
)
"""Like Mistral's: roles alternate, no generation prompt, system text joins the first user turn."""

LOOPS_ITEMS: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    "<tool_call>{{ call.function.name }}"
    "{% for name, value in call.function.arguments.items() %}<arg>{{ name }}={{ value }}</arg>{% endfor %}"
    "</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}"
)

ARGUMENTS_AS_TEXT: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' and message.content is none %}"
    "{% for call in message.tool_calls %}"
    "{{ '<tool_call>' + call.function.name + '\n' + call.function.arguments + '</tool_call>' }}"
    "{% endfor %}"
    "{% else %}{{ message.content }}{% endif %}<|im_end|>\n{% endfor %}"
)
"""Like DeepSeek's: calls are rendered only if content is None, and their arguments are concatenated to a string."""

WITH_TOOLS: Final = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% if message.tool_calls %}"
    "{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

NAMES_RESULTS: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}"
    "{% if message.role == 'tool' %}"
    "{% if not message.name %}{{ raise_exception('a result needs the name of its function') }}{% endif %}"
    "{{ ' ' + message.name }}{% endif %}"
    "{{ '\n' + (message.content or '') }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
)
"""Like Gemma's and Functionary's: a tool turn starts with the function's name and is refused without one."""

DESCRIBES_TOOLS: Final = (
    "{% for tool in tools or [] %}"
    "{{ tool.function.name + ': ' + tool.function.description + tool.function.parameters | tojson }}\n"
    "{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
)

PARTS_ONLY: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}"
)

STRING_OR_PARTS: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}[{{ part.text }}]{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
)

TRIMS: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

THINKS: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% set content = message.content %}"
    "{% if message.role == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if thinking %}<think>\n{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)

OPENS_THINKING: Final = (
    "{% for message in messages %}"
    "{{ ('User: ' if message.role == 'user' else 'Assistant: ') + message.content + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}Assistant: <think>\n{% endif %}"
)
"""Writes no control tokens, and opens reasoning itself."""

FIRST_SYSTEM_ONLY: Final = (
    "{% if messages[0].role == 'system' %}<<{{ messages[0].content }}>>{% endif %}"
    "{% for message in messages if message.role != 'system' %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
)

DEVELOPER_FIRST: Final = (
    "{% if messages[0].role in ['developer', 'system'] %}<<{{ messages[0].content }}>>{% endif %}"
    "{% for message in messages if message.role in ['user', 'assistant'] %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
)

GLUES: Final = (
    "{% for tool in tools or [] %}{{ tool.function.name }}"
    "{% for name in tool.function.parameters.properties %}<{{ name }}>{% endfor %}{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.name %}<|{{ message.name }}|>{% endif %}"
    "{{ message.content | trim }}<|im_end|>\n{% endfor %}"
    "{# <think> #}"
)
"""Builds tags from client text."""
