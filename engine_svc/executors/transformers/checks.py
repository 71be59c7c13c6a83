"""Checks of a configuration before any weight is read: whether its model can be computed by transformers here."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final

import transformers
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, PretrainedConfig, PreTrainedModel

from engine_svc.models.config import RawConfig
from engine_svc.weights.errors import ModelLoadError

_LAYER_TYPES: Final = frozenset({"full_attention", "sliding_attention"})


def read_config(folder: Path, raw: RawConfig) -> PretrainedConfig:
    """The configuration in ``folder``, whose content is ``raw``. Code in the folder is never run."""
    model_type = raw.text("model_type")
    if model_type not in CONFIG_MAPPING:
        raise ModelLoadError(
            f"model_type {model_type} is unknown to transformers {transformers.__version__}, "
            "and code that comes with a model is never run"
        )
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # Each family validates in its own way.
        raise ModelLoadError(f"{folder / 'config.json'} is not what transformers expects: {error}") from error
    return config


def find_class(config: PretrainedConfig) -> type[PreTrainedModel]:
    """The class of the model. Raises ``ModelLoadError`` naming what is not supported."""
    found = _causal_class(config)
    if (reason := _reason_against(found, config)) is not None:
        raise ModelLoadError(f"{found.__name__} is not supported: {reason}")
    return found


def _reason_against(model_class: type[PreTrainedModel], config: PretrainedConfig) -> str | None:
    if config.is_encoder_decoder:
        return "it is an encoder-decoder model"
    if config.get_text_config() is not config:
        return "it is multimodal"
    if model_class._is_stateful:
        return "it has recurrent state"
    if unknown := set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES:
        return f"unsupported layer types: {', '.join(sorted(unknown))}"
    if not model_class._can_set_attn_implementation():
        return (
            "its attention cannot be replaced through transformers' AttentionInterface, "
            "as with ALiBi and other attention biases"
        )
    if "position_ids" not in inspect.signature(model_class.forward).parameters:
        return "its forward has no position_ids"
    return None


def longest_sequence(config: PretrainedConfig) -> int:
    """Maximum tokens of a sequence.

    With "longrope", the rotary embedding of all tokens changes once a sequence exceeds
    ``original_max_position_embeddings``: sequences end there, as with Phi 3 (``engine_svc.models.phi3``).
    """
    limit = getattr(config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        raise ModelLoadError("config has no max_position_embeddings")
    return min([limit, *_longrope_limits(getattr(config, "rope_parameters", None) or {})])


def _longrope_limits(rope: dict[str, Any]) -> list[int]:
    groups = [rope, *(group for group in rope.values() if isinstance(group, dict))]
    return [group["original_max_position_embeddings"] for group in groups if group.get("rope_type") == "longrope"]


def _causal_class(config: PretrainedConfig) -> type[PreTrainedModel]:
    """The causal language model class of this family that ``architectures`` names."""
    named = config.architectures or []
    known: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), ())
    candidates: tuple[type[PreTrainedModel], ...] = known if isinstance(known, tuple) else (known,)
    for candidate in candidates:
        if candidate.__name__ in named:
            return candidate
    raise ModelLoadError(
        f"architecture {', '.join(named) or '(none)'} is not a causal language model "
        f"of transformers for model_type {config.model_type}"
    )
