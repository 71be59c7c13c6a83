"""What a configuration says about whether transformers can serve its model here, before any weight is read."""

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
    """The configuration in ``folder``, of which ``raw`` is the content. Code beside it is never run."""
    model_type = raw.text("model_type")
    if model_type not in CONFIG_MAPPING:
        raise ModelLoadError(
            f"model_type {model_type} is not known to transformers {transformers.__version__}, "
            "and code that comes with a model is never run"
        )
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # Each family checks its values in its own way.
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
        return "it has an encoder beside its decoder"
    if config.get_text_config() is not config:
        return "it takes more than text"
    if model_class._is_stateful:
        return "it has recurrent state beside keys and values"
    if unknown := set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES:
        return f"it has layers of {', '.join(sorted(unknown))}"
    if not model_class._can_set_attn_implementation():
        return (
            "its attention cannot be replaced through transformers' AttentionInterface, "
            "as with ALiBi and other biases of the scores"
        )
    if "position_ids" not in inspect.signature(model_class.forward).parameters:
        return "it cannot be told the positions of its tokens"
    return None


def longest_sequence(config: PretrainedConfig) -> int:
    """Maximum tokens of a sequence.

    Positions of the kind "longrope" are other ones for all tokens once a sequence is longer than a border: sequences
    end there, as with Phi 3 (``engine_svc.models.phi3``).
    """
    limit = getattr(config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        raise ModelLoadError("config lacks max_position_embeddings")
    return min([limit, *_borders(getattr(config, "rope_parameters", None) or {})])


def _borders(rope: dict[str, Any]) -> list[int]:
    sets = [rope, *(one for one in rope.values() if isinstance(one, dict))]
    return [one["original_max_position_embeddings"] for one in sets if one.get("rope_type") == "longrope"]


def _causal_class(config: PretrainedConfig) -> type[PreTrainedModel]:
    """The causal language model of this family, if that is what the weights are of."""
    named = config.architectures or []
    known: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), ())
    candidates: tuple[type[PreTrainedModel], ...] = known if isinstance(known, tuple) else (known,)
    for candidate in candidates:
        if candidate.__name__ in named:
            return candidate
    raise ModelLoadError(
        f"architecture {', '.join(named) or 'none given'} is no causal language model "
        f"that transformers has for model_type {config.model_type}"
    )
