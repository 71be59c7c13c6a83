"""Compiles and runs chat templates in a sandbox, with the environment of transformers.

Filters, functions, tags and white space rules are those of ``transformers.utils.chat_template_utils``, so that a
template gives the same text. Independent of conversations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from tokenizer_svc.limits import LimitExceeded
from tokenizer_svc.template import GLOBAL_NAMES, TemplateFault, TemplateRefusal

_TEMPLATE_FILE: Final = "<template>"


class _Raised(TemplateError):
    """Raised by ``raise_exception``."""


class SandboxedTemplate:
    """See ``template.Template``. Endless loops and excessive memory use are stopped elsewhere: see ``renderer``."""

    def __init__(self, source: str, max_chars: int) -> None:
        """Raises ``TemplateFault`` if the source is not a valid template, and ``MemoryError``."""
        self.source = source
        self._max_chars = max_chars
        try:
            self._template = _ENVIRONMENT.from_string(source)
            self.variables = frozenset(find_undeclared_variables(_ENVIRONMENT.parse(source)))
        except TemplateSyntaxError as error:
            raise TemplateFault(f"line {error.lineno}: {error.message}") from None
        except MemoryError:
            raise
        except Exception as error:
            raise TemplateFault(type(error).__name__) from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """See ``template.Template``. Also raises ``MemoryError``."""
        try:
            return "".join(self._chunks(variables))
        except (LimitExceeded, MemoryError):
            raise
        except _Raised as error:
            raise TemplateRefusal(error.message or "the chat template refused the conversation") from None
        except Exception as error:
            raise TemplateFault(f"{type(error).__name__} in line {_line(error)}") from error

    def _chunks(self, variables: Mapping[str, Any]) -> list[str]:
        chunks, size = [], 0
        for chunk in self._template.generate(variables):
            chunks.append(chunk)
            size += len(chunk)
            if size > self._max_chars:
                raise LimitExceeded(f"the chat template wrote more than {self._max_chars} characters")
        return chunks


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}`` marks assistant text for training; it renders its content."""

    tags = {"generation"}  # noqa: RUF012  # jinja's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """``dict`` without its attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """A namespace without underscore names, through which a template could reach the interpreter."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, given = args[0], dict(*args[1:], **kwargs)
        for name in given:
            _check_name(name)
        Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError("a namespace must not have names that start with an underscore")


def _raise_exception(message: object) -> NoReturn:
    raise _Raised(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Replaces Jinja's own ``tojson``, which escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, jinja2.ext.loopcontrols]
    )
    del environment.globals["lipsum"]
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_raise_exception, strftime_now=_strftime_now, dict=_Dict(), namespace=_Namespace
    )
    assert environment.globals.keys() == GLOBAL_NAMES
    return environment


def _line(error: Exception) -> int:
    """The line of the template that raised an error; 0 if unknown."""
    line, traceback = 0, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _TEMPLATE_FILE:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


_ENVIRONMENT: Final = _environment()
