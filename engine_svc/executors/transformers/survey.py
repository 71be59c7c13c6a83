"""The attention configuration of a transformers model, read from one forward pass over a few tokens.

Each layer passes its mask, its scale and other options to the attention function. Here they are recorded, and nothing
is computed. Options that our backends do not support are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers.masking_utils import sdpa_mask

from engine_svc.attention.interface import AttentionConfig
from engine_svc.weights.errors import ModelLoadError

SURVEY: Final = "pellucid_survey"
"""Name as an ``attn_implementation``."""
_NUM_TOKENS: Final = 4
_WITHOUT_EFFECT: Final = frozenset(
    {
        "dropout",
        "is_causal",
        "position_ids",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
    }
)
"""Options without effect in a flat batch of causal sequences, once they are known to be causal"""
_NAMES: Final = {
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "position_bias": "a position bias",
    "indices": "sparse attention",
    "block_indices": "sparse attention",
}


@dataclass(slots=True)
class _Survey:
    longest: int
    """Maximum tokens of a sequence"""
    masks: list[tuple[Tensor, int | None]] = field(default_factory=list)
    """Each mask that the model built, and its window"""
    layers: list[AttentionConfig] = field(default_factory=list)
    """The configuration of each layer, as if it were the only one"""


_survey: ContextVar[_Survey] = ContextVar("survey")


def survey_attention(model: nn.Module, config: PretrainedConfig, longest: int) -> AttentionConfig:
    """The attention configuration of ``model``, whose ``attn_implementation`` is ``SURVEY``, for sequences of up to
    ``longest`` tokens. Raises ``ModelLoadError`` for anything that backends do not support."""
    found = _Survey(longest)
    token = _survey.set(found)
    try:
        positions = torch.arange(_NUM_TOKENS)[None]
        model(input_ids=torch.zeros_like(positions), position_ids=positions, use_cache=False)
    finally:
        _survey.reset(token)
    if len(found.layers) < config.num_hidden_layers:
        raise ModelLoadError(
            f"{config.num_hidden_layers - len(found.layers)} layers have no attention, or bypass AttentionInterface"
        )
    return _together(found.layers)


def _together(layers: list[AttentionConfig]) -> AttentionConfig:
    """One configuration for all layers, which may only differ in their windows."""
    first = layers[0]
    for layer in layers:
        for name in ("num_heads", "num_kv_heads", "head_dim", "dtype", "scale", "softcap"):
            if getattr(layer, name) != getattr(first, name):
                raise ModelLoadError(f"layers differ in attention {name}")
    return replace(first, windows=tuple(window for layer in layers for window in layer.windows))


def _note_layer(
    layer: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | Tensor | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Shapes as in ``engine_svc.executors.transformers.attention``. Returns zeros."""
    found = _survey.get()
    for name, option in options.items():
        if option is not None and name not in _WITHOUT_EFFECT:
            raise ModelLoadError(f"it has {_NAMES.get(name, f'the attention option {name}')}")
    if attention_mask is None and not options.get("is_causal", getattr(layer, "is_causal", True)):
        raise ModelLoadError("its attention is not causal")
    window = sliding_window if attention_mask is None else _window_of(found, attention_mask)
    _check_shapes(query, key, value)
    if isinstance(scaling, Tensor):
        raise ModelLoadError("the scale of its attention scores is a tensor, not a number")
    found.layers.append(
        AttentionConfig(
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            head_dim=key.shape[3],
            dtype=key.dtype,
            windows=(window,),
            scale=scaling,
            softcap=softcap,
        )
    )
    return torch.zeros_like(query).transpose(1, 2).contiguous(), None


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    if value.shape[3] != key.shape[3]:
        raise ModelLoadError(f"heads have values of size {value.shape[3]} but keys of size {key.shape[3]}")
    if not query.shape[2] == key.shape[2] == _NUM_TOKENS:
        raise ModelLoadError("its attention is not over its own tokens only")
    if not query.dtype == key.dtype == value.dtype:
        raise ModelLoadError(f"queries, keys and values differ in dtype: {query.dtype}, {key.dtype}, {value.dtype}")


def _window_of(found: _Survey, mask: Tensor) -> int | None:
    for known, window in found.masks:
        if known is mask:
            return window
    raise ModelLoadError("layers build a mask or bias of their own")


def _note_mask(**given: Any) -> Tensor:
    """Arguments as in ``transformers.masking_utils.sdpa_mask``."""
    found = _survey.get()
    padding = given.pop("attention_mask", None)
    if padding is not None and not padding.all():
        raise ModelLoadError("it has a padding mask")
    mask = _mask(given)
    found.masks.append((mask, _read_window(lambda position: _row(given, position, found.longest), found.longest)))
    return mask


def _mask(given: dict[str, Any]) -> Tensor:
    """Which queries attend to which keys, bool [1, 1, queries, keys]"""
    mask = sdpa_mask(**given | {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})
    assert mask is not None
    return mask


def _row(given: dict[str, Any], position: int, longest: int) -> Tensor:
    """Which of ``longest`` tokens the one at ``position`` attends to, bool [tokens]"""
    return _mask(given | {"q_length": 1, "q_offset": position, "kv_length": longest})[0, 0, 0]


def _read_window(row: Callable[[int], Tensor], longest: int) -> int | None:
    """The window of a mask with these rows, as in ``AttentionConfig.windows``.

    Raises ``ModelLoadError`` if the mask is not causal with the same window at every position.
    """
    window = int(row(longest - 1).sum())
    for position in {0, longest // 2, longest - 2, longest - 1} - {-1}:
        expected = torch.zeros(longest, dtype=torch.bool)
        expected[max(0, position + 1 - window) : position + 1] = True
        if not row(position).equal(expected):
            raise ModelLoadError("its mask is neither causal nor a sliding window")
    return None if window == longest else window


AttentionInterface.register(SURVEY, _note_layer)
AttentionMaskInterface.register(SURVEY, _note_mask)
