from __future__ import annotations

import json
import weakref

import pytest

from tokenizer_svc.limits import LimitExceeded
from tokenizer_svc.sandbox import SandboxedTemplate
from tokenizer_svc.template import TemplateFault, TemplateRefusal
from tokenizer_svc.template_child import TemplateChild
from tokenizer_svc.template_wire import pack_request, unpack_answer


def answer(source: str, variables: dict[str, object] | None, child: TemplateChild | None = None) -> str:
    return unpack_answer((child or TemplateChild(100)).answer(pack_request(source.encode(), variables)))


def test_a_rendering() -> None:
    assert answer("{{ x }} ü", {"x": [1]}) == "[1] ü"


def test_the_names_that_a_template_reads() -> None:
    assert json.loads(answer("{{ b }}{{ a.c }}{{ range(2) }}", None)) == ["a", "b"]


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{{ raise_exception('no') }}", TemplateRefusal),
        ("{{ 1 // 0 }}", TemplateFault),
        ("{{", TemplateFault),
        (r"{{ '\udfff' }}", TemplateFault),
        ("{{ 'a' * 101 }}", LimitExceeded),
    ],
)
def test_what_a_template_raises(source: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        answer(source, {})


def test_a_template_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    class Counting(SandboxedTemplate):
        def __init__(self, source: str, max_chars: int) -> None:
            compiled.append(source)
            super().__init__(source, max_chars)

    monkeypatch.setattr("tokenizer_svc.template_child.SandboxedTemplate", Counting)
    child = TemplateChild(100)
    for _ in range(3):
        assert answer("{{ x }}", {"x": 1}, child) == "1"
        assert answer("{{ y }}", None, child) == '["y"]'
    assert compiled == ["{{ x }}", "{{ y }}"]


def test_what_filled_the_memory_is_free_when_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = []

    class Filling(SandboxedTemplate):
        def render(self, variables: object) -> str:
            much = {"much"}
            filled.append(weakref.ref(much))
            raise MemoryError

    monkeypatch.setattr("tokenizer_svc.template_child.SandboxedTemplate", Filling)
    try:
        answer("", {})
    except MemoryError:
        assert [each() for each in filled] == [None]
    assert filled
