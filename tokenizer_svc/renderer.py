"""Runs chat templates in child processes, because nothing else stops an endless loop or returns its memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from svclib.child_process import ChildDied, ChildPool, ChildTimeout
from tokenizer_svc.limits import LimitExceeded, Limits, out_of_memory
from tokenizer_svc.template import TemplateFault
from tokenizer_svc.template_wire import pack_request, unpack_answer

_CHILD: Final = "tokenizer_svc.template_child"
_OUT_OF_MEMORY: Final = MemoryError.__name__


class Renderer:
    """A pool of ``workers`` child processes. Thread-safe; each call waits until a child is free."""

    def __init__(self, workers: int, limits: Limits) -> None:
        self._limits = limits
        self._children = ChildPool(workers, _CHILD, [str(limits.memory_bytes), str(limits.chars)])

    def template(self, source: str) -> RenderedTemplate:
        """A template that runs in the children. Raises ``TemplateFault`` and ``LimitExceeded``."""
        return RenderedTemplate(source, self)

    def ask(self, request: bytes) -> str:
        """The answer to a request of ``template_wire``. Raises the template's errors and ``LimitExceeded``."""
        try:
            return unpack_answer(self._answer(request))
        except ChildTimeout:
            raise LimitExceeded(f"the chat template ran for more than {self._limits.seconds:g} seconds") from None
        except ChildDied as error:
            if str(error) != _OUT_OF_MEMORY:
                raise TemplateFault("its child process ended") from None
            raise out_of_memory(self._limits.memory_bytes) from None

    def close(self) -> None:
        """Stop the children. Running calls end with ``TemplateFault``."""
        self._children.close()

    def _answer(self, request: bytes) -> bytes:
        try:
            return self._children.call(request, self._limits.seconds)
        except ChildDied as error:
            if str(error) == _OUT_OF_MEMORY:
                raise
        # The child may have been killed while idle, which is not the template's fault.
        return self._children.call(request, self._limits.seconds)


class RenderedTemplate:
    """See ``template.Template``."""

    def __init__(self, source: str, renderer: Renderer) -> None:
        self.source = source
        self._renderer = renderer
        try:
            self._encoded = source.encode()
        except UnicodeEncodeError:
            raise TemplateFault("it contains lone surrogates, which are not valid Unicode") from None
        self.variables = frozenset(json.loads(renderer.ask(pack_request(self._encoded, None))))

    def render(self, variables: Mapping[str, Any]) -> str:
        return self._renderer.ask(pack_request(self._encoded, variables))
