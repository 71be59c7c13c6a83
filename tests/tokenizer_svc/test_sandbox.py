from __future__ import annotations

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from tests.tokenizer_svc import templates
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.limits import LimitExceeded
from tokenizer_svc.template import GLOBAL_NAMES, TemplateFault, TemplateRefusal

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be <b>brief</b> & kind"},
    {"role": "user", "content": "Zürich?\n", "count": 3, "rate": 1.5, "list": [1, None, True]},
    {"role": "assistant", "content": " yes "},
]


def render(source: str, **variables: Any) -> str:
    return compiled(source).render(variables)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}",
        "  {% for m in messages %}\n    {{ m.role }}\n  {% endfor %}\n  end\n",
        "{{ messages | tojson }}",
        "{{ messages | tojson(indent=2) }}{{ messages[1] | tojson(sort_keys=true, separators=(',', ':')) }}",
        "{{ messages[1] | tojson(ensure_ascii=true) }}",
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
        "{% generation %}{{ messages[2].content }}{% endgeneration %}!",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "{% macro f(x, y='z') %}[{{ x }}{{ y }}]{% endmacro %}{{ f(1) }}{{ f(2, y=3) }}",
        "{% macro list() %}({{ caller() }}){% endmacro %}{% call list() %}x{% endcall %}",
        "{{ dict(a=1, b=2).a }}{{ dict.fromkeys('ab', 1) }}{{ messages[0].items() | list | length }}",
        "{{ messages[1].missing }}|{{ messages[1].missing is defined }}|{{ missing | default('d') }}",
        "{% filter upper %}a{{ messages[0].role | replace('s', 'S') }}{% endfilter %}",
        "{% set text | trim %}  {{ messages[2].content }} {% endset %}<{{ text }}>",
        "{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'eq', 'user') | list }}",
        "{{ 'a' ~ 1 ~ none ~ messages[0].role }}{{ 'x' * 3 }}{{ 2 ** 5 }}{{ '%s-%d' % ('a', 3) }}{{ 7 % 4 }}",
        "{{ messages[0].content[3:8] }}{{ messages[::-1][0].role }}{{ 'a,b'.split(',')[1].upper() }}",
        "{{ range(3) | list }}{{ messages[1].list }}{{ messages[1].rate }}{{ 7 // 2 }}{{ true and none }}",
        "{% for a in [{'n': 1, 'c': [{'n': 2, 'c': []}]}] recursive %}{{ a.n }}{{ loop(a.c) }}{% endfor %}",
        "{% for x in [] %}x{% else %}none{% endfor %}{{ loop is defined }}{{ 'b' if false }}|{{ tools }}",
        "{{ strftime_now('%Y') }}{{ add_generation_prompt }}{{ bos_token }}",
        templates.CHATML,
        templates.STRICT.replace("messages[0].role == 'system'", "true"),
    ],
)
def test_renders_the_same_text_as_transformers(source: str) -> None:
    variables: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
    expected: Any = render_jinja_template(conversations=[MESSAGES], chat_template=source, **variables)
    assert [render(source, messages=MESSAGES, tools=None, documents=None, **variables)] == expected[0]


def test_data_is_never_template_source() -> None:
    assert render("{{ text }}", text="{{ 7*7 }}{% raw %}") == "{{ 7*7 }}{% raw %}"


def test_raise_exception_gives_the_templates_message() -> None:
    with pytest.raises(TemplateRefusal, match=r"^roles must alternate, not a$"):
        render("{{ raise_exception('roles must alternate, not ' + x) }}", x="a")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ lipsum() }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
    ],
)
def test_nothing_outside_the_sandbox_is_reached(source: str) -> None:
    with pytest.raises(TemplateFault):
        render(source, messages=[])


def test_attributes_of_objects_are_undefined() -> None:
    assert render("{{ ''.__class__ }}|{{ messages.__len__ }}", messages=[]) == "|"


@pytest.mark.parametrize(
    ("source", "line"), [("{{ 1 }}\n{{ a.b.c }}", 2), ("\n\n{{ 'a' + 1 }}", 3), ("{{ 1 // 0 }}", 1)]
)
def test_a_fault_names_its_line_and_no_data(source: str, line: int) -> None:
    with pytest.raises(TemplateFault, match=rf"^\w+ in line {line}$"):
        render(source)


@pytest.mark.parametrize("source", ["{% if %}", "{% for %}", "{{", "{% endif %}", "{{ x | nofilter }}", "{% tag %}"])
def test_an_invalid_template_source(source: str) -> None:
    with pytest.raises(TemplateFault):
        compiled(source)


@pytest.mark.parametrize("name", sorted(GLOBAL_NAMES))
def test_global_functions_of_templates(name: str) -> None:
    assert render(f"{{{{ {name} is callable }}}}") == "True"
    assert name not in compiled(f"{{{{ {name}(x) }}}}").variables


@pytest.mark.parametrize(("size", "fits"), [(10_000, True), (10_001, False)])
@pytest.mark.parametrize("source", ["{{ text }}", "{% for c in text %}{{ c }}{% endfor %}"])
def test_the_size_of_the_output_at_the_limit_and_one_above(source: str, size: int, fits: bool) -> None:
    template = compiled(source, max_chars=10_000)
    if fits:
        assert template.render({"text": "ü" * size}) == "ü" * size
    else:
        with pytest.raises(LimitExceeded, match=r"^the chat template wrote more than 10000 characters$"):
            template.render({"text": "ü" * size})


def test_the_size_counts_in_every_rendering_alone() -> None:
    template = compiled("{{ text }}", max_chars=10)
    for _ in range(3):
        assert template.render({"text": "a" * 10}) == "a" * 10
