"""Reasoning parsers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from detokenizer_svc.reasoning.think import Think
from detokenizer_svc.stage import ParserContext, Stage

REASONING_PARSERS: Final[Mapping[str, Callable[[ParserContext], Stage]]] = MappingProxyType({"think": Think})
