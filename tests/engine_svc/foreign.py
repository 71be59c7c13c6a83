"""Tiny configurations of families that are not native. Each has a feature that the others do not have."""

from __future__ import annotations

from typing import Any

from transformers import (
    CohereConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoXConfig,
    GraniteConfig,
    MixtralConfig,
    Olmo3Config,
    OPTConfig,
    PretrainedConfig,
    StableLmConfig,
    Starcoder2Config,
    VaultGemmaConfig,
)

from tests.engine_svc.tiny import SIZES

ALIKE = {name: size for name, size in SIZES.items() if name != "num_key_value_heads"} | {"pad_token_id": None}
GROUPED = SIZES | {"pad_token_id": None}


def gpt_neox(**changes: Any) -> GPTNeoXConfig:
    return GPTNeoXConfig(**(ALIKE | {"hidden_size": 32} | changes))


def opt(**changes: Any) -> OPTConfig:
    return OPTConfig(**(ALIKE | {"word_embed_proj_dim": 12, "ffn_dim": 40} | changes))


def starcoder2(**changes: Any) -> Starcoder2Config:
    return Starcoder2Config(**(GROUPED | {"sliding_window": 16} | changes))


FAMILIES: dict[str, PretrainedConfig] = {
    # Heads rotated in part, attention and MLP side by side.
    "gpt_neox": gpt_neox(),
    # Learned positions, and weights of linear layers the other way round.
    "gpt2": GPT2Config(**(ALIKE | {"scale_attn_by_inverse_layer_idx": False})),
    # Learned positions that begin at 2; queries scaled beforehand.
    "opt": opt(),
    # One key head for all.
    "gpt_bigcode": GPTBigCodeConfig(**ALIKE),
    # Neighbours rotated together, scaled logits.
    "cohere": CohereConfig(**(GROUPED | {"logit_scale": 0.5})),
    "granite": GraniteConfig(
        **(GROUPED | {"attention_multiplier": 0.3, "residual_multiplier": 0.6, "logits_scaling": 2.0})
    ),
    "stablelm": StableLmConfig(**(GROUPED | {"hidden_size": 32, "use_qkv_bias": True})),
    # A window in all layers.
    "starcoder2": starcoder2(),
    # A window in some layers.
    "olmo3": Olmo3Config(**(GROUPED | {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]})),
    # Capped scores and logits.
    "vaultgemma": VaultGemmaConfig(
        **(
            GROUPED
            | {"head_dim": 6, "query_pre_attn_scalar": 5, "sliding_window": 16}
            | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}
        )
    ),
    # Experts.
    "mixtral": MixtralConfig(**(GROUPED | {"num_local_experts": 4, "sliding_window": 16})),
}
