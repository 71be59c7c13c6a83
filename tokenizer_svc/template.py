"""What a chat template is to the rest of the service. Knows neither how templates are compiled nor where they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

GLOBAL_NAMES: Final = frozenset(
    {"range", "dict", "cycler", "joiner", "namespace", "raise_exception", "strftime_now"},
)
"""Names of the functions that every template can call."""


class TemplateRefusal(Exception):
    """The template itself refused with ``raise_exception``; the message is its own sentence."""


class TemplateFault(Exception):
    """The template failed in a way that its author did not foresee. The message names no data of the conversation."""


class Template(Protocol):
    """A compiled template. May be rendered from several threads at once."""

    @property
    def source(self) -> str:
        """Its text."""

    @property
    def variables(self) -> frozenset[str]:
        """The names that it reads."""

    def render(self, variables: Mapping[str, Any]) -> str:
        """What the template writes. Raises ``TemplateRefusal``, ``TemplateFault`` or ``LimitExceeded``.

        The variables must be plain JSON values.
        """
