from __future__ import annotations

import json
import weakref
from typing import ClassVar

import pytest

from tokenizer_svc.limits import LimitExceeded
from tokenizer_svc.sandbox import SandboxedTemplate
from tokenizer_svc.template import TemplateFault, TemplateRefusal
from tokenizer_svc.template_child import TemplateChild
from tokenizer_svc.template_wire import pack_request, unpack_answer


def answer(source: str, variables: dict[str, object] | None, child: TemplateChild | None = None) -> str:
    return unpack_answer((child or TemplateChild(1 << 30, 100)).answer(pack_request(source.encode(), variables)))


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
def test_errors_of_templates(source: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        answer(source, {})


def test_a_template_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    class Counting(SandboxedTemplate):
        def __init__(self, source: str, max_chars: int) -> None:
            compiled.append(source)
            super().__init__(source, max_chars)

    monkeypatch.setattr("tokenizer_svc.template_child.SandboxedTemplate", Counting)
    child = TemplateChild(1 << 30, 100)
    for _ in range(3):
        assert answer("{{ x }}", {"x": 1}, child) == "1"
        assert answer("{{ y }}", None, child) == '["y"]'
    assert compiled == ["{{ x }}", "{{ y }}"]


class Filling(SandboxedTemplate):
    """Fills memory that its traceback refers to."""

    filled: ClassVar[list[weakref.ref[set[str]]]] = []

    def render(self, variables: object) -> str:
        much = {"much"}
        self.filled.append(weakref.ref(much))
        raise MemoryError


def test_after_a_template_that_filled_its_memory_the_next_one_has_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenizer_svc.template_child.SandboxedTemplate", Filling)
    with pytest.raises(LimitExceeded, match="needed more than 1024 MB of memory"):
        answer("", {})
    assert Filling.filled[-1]() is None


@pytest.mark.parametrize(("kept", "error"), [((1 << 28) - 1, LimitExceeded), (1 << 28, MemoryError)])
def test_a_child_that_keeps_a_quarter_of_the_memory_is_replaced(
    kept: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends with a ``MemoryError``, and the next one starts with all of the memory."""
    sizes = iter((1 << 24, (1 << 24) + kept))
    monkeypatch.setattr("tokenizer_svc.template_child.address_space", lambda: next(sizes))
    monkeypatch.setattr("tokenizer_svc.template_child.SandboxedTemplate", Filling)
    with pytest.raises(error):
        answer("", {})
