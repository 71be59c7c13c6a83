"""The tool call and reasoning formats of a chat template, recognised by the tags in its text.

The names are those of the parsers in vLLM and SGLang, or of the model. Not every format has a parser: the gateway warns
at start about a format without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NONE: Final = ""

THINK_TAGS: Final = {
    "think": ("<think>", "</think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
}
"""Opening and closing tag of each reasoning format that has a pair of tags."""


@dataclass(frozen=True, slots=True)
class _Format:
    """A format is recognised if all of ``present`` and none of ``absent`` are in the template."""

    name: str
    present: tuple[str, ...]
    absent: tuple[str, ...] = ()

    def matches(self, template: str) -> bool:
        return all(tag in template for tag in self.present) and not any(tag in template for tag in self.absent)


_TOOL_FORMATS: Final = (
    _Format("harmony", ("<|channel|>", "<|message|>")),
    _Format("deepseek_v32", ("｜DSML｜",)),
    _Format("deepseek_v3", ("<｜tool▁calls▁begin｜>", "```json")),
    _Format("deepseek_v31", ("<｜tool▁calls▁begin｜>",)),
    _Format("kimi_k2", ("<|tool_calls_section_begin|>",)),
    _Format("mistral", ("[TOOL_CALLS]",)),
    _Format("minimax_m2", ("<minimax:tool_call>",)),
    _Format("seed_oss", ("<seed:tool_call>",)),
    _Format("glm45", ("<arg_key>",)),
    _Format("qwen3_coder", ("<tool_call>", "<function=")),
    _Format("gemma4", ("<|tool_call>",)),
    _Format("granite", ("<|tool_call|>", "<|start_of_role|>")),
    _Format("phi4_mini_json", ("<|tool_call|>",)),
    _Format("hermes", ("<tool_call>", '"arguments"')),
    _Format("hermes", ("<tool_call>", r"\"arguments\"")),
    _Format("llama3_json", ("<|start_header_id|>", '"parameters": ')),
)
"""The first match wins."""

_REASONING_FORMATS: Final = (
    _Format("harmony", ("<|channel|>", "<|message|>")),
    _Format("seed_oss", ("<seed:think>",)),
    _Format("mistral", ("[THINK]",)),
    _Format("gemma4", ("<|channel>",)),
    _Format("think", ("<think>",)),
    _Format("think", ("</think>",)),
    _Format("cohere_command", ("<|START_THINKING|>",)),
    _Format("minimax_m3", ("<mm:think>",)),
    _Format("longcat", ("<longcat_think>",)),
    _Format("kimi_vl", ("◁think▷",)),
    _Format("openthoughts", ("<|begin_of_thought|>",)),
    _Format("apertus", ("<|inner_prefix|>",)),
    _Format("apriel", ("[BEGIN FINAL RESPONSE]",)),
    _Format("granite", ("Here is my thought process:",)),
    _Format("exaone_deep", ("<thought>",)),
)


def tool_format(template: str) -> str:
    """Name of the tool call format; empty if none is recognised."""
    return _first(_TOOL_FORMATS, template)


def reasoning_format(template: str) -> str:
    """Name of the reasoning format; empty if none is recognised."""
    return _first(_REASONING_FORMATS, template)


def _first(formats: tuple[_Format, ...], template: str) -> str:
    return next((known.name for known in formats if known.matches(template)), NONE)
