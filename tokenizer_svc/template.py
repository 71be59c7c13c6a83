"""The interface of a chat template. Independent of how templates are compiled and where they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

GLOBAL_NAMES: Final = frozenset(
    {"range", "dict", "cycler", "joiner", "namespace", "raise_exception", "strftime_now"},
)
"""Names of the global functions of every template."""


class TemplateRefusal(Exception):
    """The template refused the conversation with ``raise_exception``; the message is the template's."""


class TemplateFault(Exception):
    """The template failed unexpectedly. The message contains no data of the conversation."""


class Template(Protocol):
    """A compiled template. Thread-safe."""

    @property
    def source(self) -> str:
        """The source text."""

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that the template reads."""

    def render(self, variables: Mapping[str, Any]) -> str:
        """The rendered text. Raises ``TemplateRefusal``, ``TemplateFault`` or ``LimitExceeded``.

        The variables must be plain JSON values.
        """
