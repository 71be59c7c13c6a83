"""Tool parsers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from detokenizer_svc.stage import ParserContext, Stage
from detokenizer_svc.tools import hermes
from detokenizer_svc.tools.call_syntax import CallSyntax

TOOL_PARSERS: Final[Mapping[str, Callable[[ParserContext], Stage]]] = MappingProxyType({"hermes": hermes.Hermes})

CALL_SYNTAXES: Final[Mapping[str, CallSyntax]] = MappingProxyType({"hermes": hermes.SYNTAX})
"""Call syntaxes of the tool parsers that support forced calls."""
