"""Tool call formats by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from detokenizer_svc.stage import ParserContext, Stage
from detokenizer_svc.tools.hermes import Hermes

TOOL_PARSERS: Final[Mapping[str, Callable[[ParserContext], Stage]]] = MappingProxyType({"hermes": Hermes})
