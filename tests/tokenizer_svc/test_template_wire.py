from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_svc.limits import LimitExceeded
from tokenizer_svc.template import TemplateFault, TemplateRefusal
from tokenizer_svc.template_wire import pack_error, pack_request, pack_text, unpack_answer, unpack_request

VARIABLES = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()))


@given(source=st.binary(), variables=st.none() | VARIABLES)
def test_requests(source: bytes, variables: dict[str, Any] | None) -> None:
    assert unpack_request(pack_request(source, variables)) == (source, variables)


def test_variables_keep_their_order() -> None:
    _, variables = unpack_request(pack_request(b"", {"b": {"z": 1, "a": 2}, "a": 0}))
    assert repr(variables) == "{'b': {'z': 1, 'a': 2}, 'a': 0}"


@given(text=st.text())
def test_texts(text: str) -> None:
    assert unpack_answer(pack_text(text)) == text


@pytest.mark.parametrize("kind", [TemplateRefusal, TemplateFault, LimitExceeded])
@given(message=st.text(max_size=100))
def test_errors(kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        unpack_answer(pack_error(kind(message)))
    assert str(caught.value) == message


def test_an_error_with_lone_surrogates() -> None:
    with pytest.raises(TemplateRefusal, match=r"^a\?b$"):
        unpack_answer(pack_error(TemplateRefusal("a\ud800b")))
