"""Templates in child processes. Runaway templates are killed, and the next template gets a new child."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_svc import hostile_templates, templates
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.limits import LimitExceeded, Limits
from tokenizer_svc.renderer import Renderer
from tokenizer_svc.template import TemplateFault, TemplateRefusal

MEGABYTE = 1 << 20
ROOMY = Limits(seconds=60, memory_bytes=512 * MEGABYTE, chars=10_000)
TIGHT = Limits(seconds=0.3, memory_bytes=96 * MEGABYTE, chars=10_000)
MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def roomy() -> Iterator[Renderer]:
    renderer = Renderer(2, ROOMY)
    yield renderer
    renderer.close()


@pytest.fixture(scope="module")
def tight() -> Iterator[Renderer]:
    renderer = Renderer(2, TIGHT)
    yield renderer
    renderer.close()


def children() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if "tokenizer_svc.template_child" in each.cmdline()]


def fault(renderer: Renderer, source: str) -> Exception:
    """The error that a template raises."""
    with pytest.raises((LimitExceeded, TemplateFault, TemplateRefusal)) as caught:
        renderer.template(source).render(MESSAGES)
    return caught.value


@given(value=JSON)
def test_values_are_the_same_in_the_child(roomy: Renderer, value: Any) -> None:
    source = "{{ value | tojson }}|{{ value | string }}|{{ value }}"
    assert roomy.template(source).render({"value": value}) == compiled(source).render({"value": value})


@pytest.mark.parametrize("source", [templates.CHATML, templates.WITH_TOOLS, templates.STRICT])
def test_a_template_renders_the_same_as_in_process(roomy: Renderer, source: str) -> None:
    here, there = compiled(source), roomy.template(source)
    variables = {**MESSAGES, "tools": [{"b": 1, "a": 2}], "bos_token": "<s>", "eos_token": "</s>"}
    assert there.render(variables) == here.render(variables)
    assert there.variables == here.variables
    assert there.source == source


def test_a_refusal_and_a_fault_are_the_same_as_in_process(roomy: Renderer) -> None:
    refused = fault(roomy, "{{ raise_exception('roles must alternate, Zürich') }}")
    assert (type(refused), str(refused)) == (TemplateRefusal, "roles must alternate, Zürich")
    failed = fault(roomy, "\n{{ messages[7].secret.name }}")
    assert (type(failed), str(failed)) == (TemplateFault, "UndefinedError in line 2")
    assert "line 1" in str(fault(roomy, "{% for %}"))


def test_a_long_message_is_cut(roomy: Renderer) -> None:
    assert len(str(fault(roomy, "{{ raise_exception('a' * 10000000) }}"))) < 10_000


def test_a_long_conversation() -> None:
    renderer = Renderer(1, Limits(60, 512 * MEGABYTE, 17_000_000))
    text = "\U0001f600" * 4_000_000
    try:
        assert renderer.template("{{ messages[0].content }}").render({"messages": [{"content": text}]}) == text
    finally:
        renderer.close()


def test_the_output_is_bounded(roomy: Renderer) -> None:
    assert str(fault(roomy, "{% for i in range(10001) %}a{% endfor %}")) == (
        "the chat template wrote more than 10000 characters"
    )


@pytest.mark.parametrize("name", hostile_templates.SLOW)
def test_the_time_is_bounded(tight: Renderer, name: str) -> None:
    error = fault(tight, hostile_templates.SLOW[name])
    assert isinstance(error, LimitExceeded)
    assert "the chat template" in str(error)


@pytest.mark.parametrize("name", hostile_templates.LARGE)
def test_the_memory_is_bounded(tight: Renderer, name: str) -> None:
    before = psutil.Process().memory_info().rss
    assert isinstance(fault(tight, hostile_templates.LARGE[name]), (LimitExceeded, TemplateFault))
    assert psutil.Process().memory_info().rss - before < 32 * MEGABYTE


@pytest.mark.parametrize("name", hostile_templates.FAULTY)
def test_operations_refused_by_python_or_the_sandbox(roomy: Renderer, name: str) -> None:
    assert isinstance(fault(roomy, hostile_templates.FAULTY[name]), (LimitExceeded, TemplateFault))


def test_messages_name_the_limit(tight: Renderer) -> None:
    slow, large = hostile_templates.SLOW["nested ranges"], hostile_templates.LARGE["center"]
    assert str(fault(tight, slow)) == "the chat template ran for more than 0.3 seconds"
    assert str(fault(tight, large)) == "the chat template needed more than 96 MB of memory"


def test_after_a_runaway_template_others_are_rendered() -> None:
    renderer = Renderer(1, TIGHT)
    try:
        for source in (hostile_templates.SLOW["nested ranges"], hostile_templates.LARGE["center"]) * 2:
            fault(renderer, source)
            assert renderer.template("{{ 1 }}").render({}) == "1"
    finally:
        renderer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts address space")
def test_exceeding_the_memory_limit_does_not_end_the_process() -> None:
    before = set(children())
    renderer = Renderer(1, ROOMY)
    try:
        started = set(children()) - before
        for name in ("center", "indent", "plus", "list of lists"):
            assert "of memory" in str(fault(renderer, hostile_templates.LARGE[name]))
        assert set(children()) - before == started
    finally:
        renderer.close()


def test_other_templates_are_rendered_beside_a_runaway_one() -> None:
    renderer = Renderer(2, Limits(2.0, 96 * MEGABYTE, 10_000))
    quick = renderer.template("{{ x }}")
    try:
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(fault, renderer, hostile_templates.SLOW["nested ranges"])
            rendered = 0
            while not slow.done():
                assert quick.render({"x": rendered}) == str(rendered)
                rendered += 1
            assert isinstance(slow.result(), LimitExceeded)
        assert rendered > 10
    finally:
        renderer.close()


def test_a_child_killed_while_idle_is_replaced_for_the_next_template() -> None:
    before = set(children())
    renderer = Renderer(1, ROOMY)
    try:
        template = renderer.template("{{ x }}")
        for _ in range(2):
            for child in set(children()) - before:
                child.kill()
            assert template.render({"x": 1}) == "1"
    finally:
        renderer.close()


def test_a_template_that_ends_its_process_is_a_fault() -> None:
    renderer = Renderer(1, ROOMY)
    template = renderer.template("{{ x }}")
    renderer.close()
    with pytest.raises(TemplateFault, match="ended"):
        template.render({"x": 1})


def test_closing_ends_the_children() -> None:
    before = set(children())
    renderer = Renderer(3, ROOMY)
    started = set(children()) - before
    assert len(started) == 3
    renderer.close()
    assert not any(child.is_running() for child in started)
