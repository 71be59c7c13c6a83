"""What one rendering may use. A template is a program from the internet: it gets a time and a size, and no more.

The time is looked at wherever a template can go round: in each turn of a loop and in each call of a macro. The size is
looked at wherever text or lists can grow: output, operators, filters and method calls.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import nodes
from jinja2.visitor import NodeTransformer


@dataclass(frozen=True, slots=True)
class Limits:
    """``seconds`` of one rendering; ``chars`` of its output and of any value on the way."""

    seconds: float
    chars: int


class LimitExceeded(Exception):
    """A template used more than it may; the message says of what."""


class Budget:
    """What is left for the rendering that runs in this context. Outside of one, nothing is limited."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._written = 0

    def tick(self) -> None:
        if time.monotonic() > self._deadline:
            raise LimitExceeded(f"the chat template ran for more than {self._limits.seconds:g} seconds")

    def write(self, chars: int) -> None:
        self._written += chars
        self.check_size(self._written)
        self.tick()

    def check_size(self, size: int) -> None:
        if size > self._limits.chars:
            raise LimitExceeded(f"the chat template wrote more than {self._limits.chars} characters")


_BUDGET: Final[ContextVar[Budget | None]] = ContextVar("rendering_budget", default=None)


@contextmanager
def spending(limits: Limits) -> Iterator[Budget]:
    """Limit what happens inside of the ``with`` block, in this thread."""
    budget = Budget(limits)
    token = _BUDGET.set(budget)
    try:
        yield budget
    finally:
        _BUDGET.reset(token)


def tick() -> None:
    """Called by rendered code in each turn of a loop and each call of a macro."""
    if budget := _BUDGET.get():
        budget.tick()


def written(value: Any) -> Any:
    """Count the value of an output expression, also where the output is captured, and return it."""
    if isinstance(value, str) and (budget := _BUDGET.get()):
        budget.write(len(value))
    return value


def measured(value: Any) -> Any:
    """Check the size of a computed value and return it."""
    if isinstance(value, (str, list, tuple)) and (budget := _BUDGET.get()):
        budget.check_size(len(value))
    return value


def check_size(size: int) -> None:
    """Check the size of a value that is about to be computed."""
    if budget := _BUDGET.get():
        budget.check_size(size)


_WIDTH: Final = re.compile(r"\d+")


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be too large, before it is computed."""
    if operator == "*":
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, (str, list, tuple)) and isinstance(count, int):
                check_size(len(sequence) * count)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        check_size(left.bit_length() * max(right, 0))
    elif operator == "%" and isinstance(left, str):
        check_size(max(map(int, _WIDTH.findall(left)), default=0))


class LimitingTransformer(NodeTransformer):
    """Puts the calls of ``tick`` and ``measured`` into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._ticking(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._ticking(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._ticking(node)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        return self._measuring(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        return self._measuring(node)

    def visit_FilterBlock(self, node: nodes.FilterBlock) -> nodes.Node:
        return self._body_only(node)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:
        return self._body_only(node)

    def _ticking(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        statement = nodes.ExprStmt(_call("tick")).set_lineno(node.lineno)
        node.body.insert(0, statement)
        return node  # type: ignore[no-any-return]

    def _measuring(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return _call("measured", node).set_lineno(node.lineno)

    def _body_only(self, node: Any) -> nodes.Node:
        """The filters of these blocks stand alone, without an operand, and must stay filters."""
        node.body = [self.visit(child) for child in node.body]
        return node  # type: ignore[no-any-return]


def _call(name: str, *args: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)
