"""Registry of the native decoder families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine_svc.models import gemma2, gemma3, llama, mistral, olmo2, phi3, qwen2, qwen3
from engine_svc.models.config import DecoderConfig, RawConfig
from engine_svc.weights.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class Family:
    """What differs between families. ``model_type`` is the name in transformers."""

    model_type: str
    read_config: Callable[[RawConfig], DecoderConfig]


FAMILIES: Final = {
    "LlamaForCausalLM": Family("llama", llama.read_config),
    "MistralForCausalLM": Family("mistral", mistral.read_config),
    "Qwen2ForCausalLM": Family("qwen2", qwen2.read_config),
    "Qwen3ForCausalLM": Family("qwen3", qwen3.read_config),
    "Gemma2ForCausalLM": Family("gemma2", gemma2.read_config),
    "Gemma3ForCausalLM": Family("gemma3_text", gemma3.read_config),
    "Phi3ForCausalLM": Family("phi3", phi3.read_config),
    "Olmo2ForCausalLM": Family("olmo2", olmo2.read_config),
}
"""By name in ``architectures`` of config.json."""


def find_family(config: Mapping[str, Any]) -> Family:
    """The family of a config.json. Raises ``ModelLoadError`` naming the supported architectures if there is none."""
    architectures = config.get("architectures") or []
    for architecture in architectures:
        if architecture in FAMILIES:
            return FAMILIES[architecture]
    named = ", ".join(map(str, architectures)) or "none given"
    raise ModelLoadError(f"architecture {named} is not supported; supported: {', '.join(FAMILIES)}")


def read_native(config: Mapping[str, Any]) -> tuple[Family, DecoderConfig]:
    """The family of a model and its configuration. Raises ``ModelLoadError`` naming the unsupported field."""
    family = find_family(config)
    return family, family.read_config(RawConfig(config))


def reason_against_native(config: Mapping[str, Any]) -> str | None:
    """Why no native family supports this configuration; None if one does."""
    try:
        read_native(config)
    except ModelLoadError as error:
        return str(error)
    return None
