"""``python -m tokenizer_svc.template_child memory_bytes chars``: runs chat templates for ``renderer``.

Imports little, because each service has several of these processes.
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from typing import Final

from svclib.child_server import serve
from svclib.memory import address_space, trim_memory
from tokenizer_svc.limits import LimitExceeded, out_of_memory
from tokenizer_svc.sandbox import SandboxedTemplate
from tokenizer_svc.template import TemplateFault, TemplateRefusal
from tokenizer_svc.template_wire import pack_error, pack_text, unpack_request

_MAX_TEMPLATES: Final = 8


class TemplateChild:
    """Answers requests; caches the last compiled templates."""

    def __init__(self, memory_bytes: int, max_chars: int) -> None:
        """``memory_bytes`` is the memory limit of a rendering, enforced by ``serve``."""
        self._memory_bytes = memory_bytes
        self._compiled = lru_cache(_MAX_TEMPLATES)(lambda source: SandboxedTemplate(source.decode(), max_chars))
        self._at_start = address_space()

    def answer(self, message: bytes) -> bytes:
        """See ``template_wire``. Raises ``MemoryError`` if a template left too little memory for the next one."""
        try:
            return self._answer(message)
        except (TemplateRefusal, TemplateFault, LimitExceeded) as error:
            return pack_error(error)
        except MemoryError as error:
            error.with_traceback(None)  # The traceback refers to the objects that filled the memory.
        if not self._has_memory_again():
            raise MemoryError
        return pack_error(out_of_memory(self._memory_bytes))

    def _has_memory_again(self) -> bool:
        trim_memory()
        now = address_space()
        return now is None or self._at_start is None or now - self._at_start < self._memory_bytes // 4

    def _answer(self, message: bytes) -> bytes:
        source, variables = unpack_request(message)
        template = self._compiled(source)
        if variables is None:
            return pack_text(json.dumps(sorted(template.variables)))
        try:
            return pack_text(template.render(variables))
        except UnicodeEncodeError:
            raise TemplateFault("it writes lone surrogates, which are not valid Unicode") from None


def main(argv: list[str]) -> None:
    """Serve until the parent exits."""
    memory_bytes, chars = map(int, argv)
    serve(TemplateChild(memory_bytes, chars).answer, memory_bytes=memory_bytes)


if __name__ == "__main__":
    main(sys.argv[1:])
