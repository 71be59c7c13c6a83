"""A chat template that loops forever, or fills the memory, depending on the message."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from bench.hostile.kind import Kind
from bench.hostile.prompts import ask

_SETTINGS: Final = {"TOKENIZER_CHAT_TEMPLATE": str(Path(__file__).with_name("template.jinja"))}

KINDS: Final = (
    Kind("template-loops", "a template that loops forever", partial(ask, content="loop"), 2, _SETTINGS),
    Kind("template-fills", "a template that fills the memory", partial(ask, content="fill"), 2, _SETTINGS),
)
