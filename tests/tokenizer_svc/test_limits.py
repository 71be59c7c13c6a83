from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tokenizer_svc import limits
from tokenizer_svc.limits import LimitExceeded, Limits
from tokenizer_svc.sandbox import Template, TemplateFault

TIGHT = Limits(seconds=0.05, chars=10_000)
ROOMY = Limits(seconds=60, chars=10_000)
DOUBLING = "{{% set ns = namespace(x='ab') %}}{{% for i in range(80) %}}{}{{% endfor %}}"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% set x = i * j %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f(n) %}{% if n %}{% call g(n) %}{% endcall %}{% endif %}{% endmacro %}"
        "{% macro g(n) %}{{ caller() }}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(60) }}",
    ],
)
def test_the_time_is_bounded(source: str) -> None:
    with pytest.raises(LimitExceeded, match="ran for more than"):
        Template(source, TIGHT).render({})


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10001) %}a{% endfor %}",
        "{{ 'a' * 10001 }}",
        "{{ 10001 * 'a' }}",
        "{{ [1] * 1000000000 }}",
        "{{ 10 ** 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'a'.ljust(1000000000000) }}",
        "{{ 'a'.rjust(width) }}",
        DOUBLING.format("{% set ns.x = ns.x + ns.x %}"),
        DOUBLING.format("{% set ns.x = ns.x ~ ns.x %}"),
        DOUBLING.format("{% set ns.x = [ns.x, ns.x] | join %}"),
        DOUBLING.format("{% set ns.x = ns.x | replace('a', 'aa') | replace('b', 'bb') %}"),
        DOUBLING.format("{% set ns.x = ns.x.replace('a', 'aa').replace('b', 'bb') %}"),
        DOUBLING.format("{% set ns.x = '{0}{0}'.format(ns.x) %}"),
        DOUBLING.format("{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
        DOUBLING.format("{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
        "{% macro f(n) %}{{ 'aaaaaaaaaa' }}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(60) }}",
    ],
)
def test_the_size_is_bounded(source: str) -> None:
    with pytest.raises(LimitExceeded, match="wrote more than 10000 characters"):
        Template(source, ROOMY).render({"width": 10**12})


@pytest.mark.parametrize("source", ["{% for i in range(1000000000) %}{% endfor %}", "{{ 'a' | center(10 ** 16) }}"])
def test_what_python_itself_refuses_is_a_fault(source: str) -> None:
    with pytest.raises(TemplateFault):
        Template(source, ROOMY).render({})


def test_endless_recursion_is_a_fault() -> None:
    with pytest.raises(TemplateFault, match="RecursionError"):
        Template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ROOMY).render({})


@pytest.mark.parametrize(("size", "fits"), [(10_000, True), (10_001, False)])
def test_at_the_limit_and_one_above(size: int, fits: bool) -> None:
    template = Template("{{ text }}", ROOMY)
    if fits:
        assert len(template.render({"text": "a" * size})) == size
    else:
        with pytest.raises(LimitExceeded):
            template.render({"text": "a" * size})


def test_each_rendering_has_its_own_limits() -> None:
    template = Template("{% for i in range(9000) %}a{% endfor %}{{ x }}", ROOMY)
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(lambda i: template.render({"x": i}), range(20)))
    assert texts == ["a" * 9000 + str(i) for i in range(20)]


def test_outside_of_a_rendering_nothing_is_limited() -> None:
    limits.tick()
    limits.check_size(10**12)
    assert limits.written("a") == limits.measured("a") == "a"
