"""Chat templates as programs: compiled and run in a sandbox, with the environment that transformers gives them.

Same filters, functions, tags and white space rules as ``transformers.utils.chat_template_utils``, so that a template
writes here what it writes there; on top of it, limits on time and size. Knows nothing of conversations.
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
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from tokenizer_svc import limits
from tokenizer_svc.limits import LimitExceeded, Limits

_TEMPLATE_FILE: Final = "<template>"


class TemplateRefusal(Exception):
    """The template itself refused with ``raise_exception``; the message is its own sentence."""


class TemplateFault(Exception):
    """The template failed in a way that its author did not foresee. The message names no data of the conversation."""


class _Raised(TemplateError):
    """What ``raise_exception`` raises."""


class Template:
    """A compiled template. May be rendered from several threads at once. ``variables`` are the names it reads."""

    def __init__(self, source: str, rendering_limits: Limits) -> None:
        """Raises ``TemplateFault`` when the source is no template."""
        self.source = source
        self._limits = rendering_limits
        try:
            self._template = _ENVIRONMENT.from_string(source)
            self.variables = frozenset(find_undeclared_variables(_ENVIRONMENT.parse(source)))
        except TemplateSyntaxError as error:
            raise TemplateFault(f"line {error.lineno}: {error.message}") from None
        except Exception as error:
            raise TemplateFault(type(error).__name__) from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """What the template writes. Raises ``TemplateRefusal``, ``TemplateFault`` or ``LimitExceeded``.

        The variables must be plain JSON values.
        """
        with limits.spending(self._limits) as budget:
            try:
                return "".join(self._chunks(variables, budget))
            except LimitExceeded:
                raise
            except _Raised as error:
                raise TemplateRefusal(error.message or "the chat template refused the conversation") from None
            except Exception as error:
                raise TemplateFault(f"{type(error).__name__} in line {_line(error)}") from error

    def _chunks(self, variables: Mapping[str, Any], budget: limits.Budget) -> list[str]:
        chunks, size = [], 0
        for chunk in self._template.generate(variables):
            chunks.append(chunk)
            size += len(chunk)
            budget.check_size(size)
            budget.tick()
        return chunks


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox of transformers, with limits."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})
    tick = staticmethod(limits.tick)
    measured = staticmethod(limits.measured)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = Parser(self, source, name, filename).parse()
        limited: nodes.Template = limits.LimitingTransformer().visit(tree)
        return limited

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        limits.check_operands(operator, left, right)
        return limits.measured(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(getattr(__obj, "__self__", None), str):
            for number in (*args, *kwargs.values()):
                if isinstance(number, int):  # A width, as of ljust.
                    limits.check_size(number)
        return limits.measured(super().call(__context, __obj, *args, **kwargs))


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}`` marks assistant text for training; here it is only its content."""

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
    """A namespace that holds no underscore names, through which a template could reach the interpreter."""

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
        raise SecurityError("a namespace holds no name that starts with an underscore")


def _raise_exception(message: object) -> NoReturn:
    raise _Raised(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter of this name escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, jinja2.ext.loopcontrols],
        finalize=limits.written,
    )
    del environment.globals["lipsum"]
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_raise_exception, strftime_now=_strftime_now, dict=_Dict(), namespace=_Namespace
    )
    return environment


def _line(error: Exception) -> int:
    """The template's line at which an error was raised; 0 when it has none."""
    line, traceback = 0, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _TEMPLATE_FILE:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


_ENVIRONMENT: Final = _environment()
GLOBAL_NAMES: Final = frozenset(_ENVIRONMENT.globals)
"""Names of the functions that every template can call."""
