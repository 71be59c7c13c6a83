"""Models without a native family: those that transformers can compute with our attention in place of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from engine_svc.executors.transformers.attention import PAGED
from engine_svc.executors.transformers.checks import find_class, longest_sequence, read_config
from engine_svc.executors.transformers.model import FallbackModel
from engine_svc.executors.transformers.proof import check, own_logits, random_sequences
from engine_svc.executors.transformers.survey import SURVEY, survey_attention
from engine_svc.models.causal_lm import LoadedModel
from engine_svc.models.config import RawConfig
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.loading import listed


def load_fallback(folder: Path, raw: RawConfig, dtype: torch.dtype) -> LoadedModel:
    """The model in a Hugging Face folder with a config.json of this content. No code in the folder is run.

    Raises ``ModelLoadError`` naming what is not supported.
    """
    _log_with_ours()
    config = read_config(folder, raw)
    model_class = find_class(config)
    longest = longest_sequence(config)
    model = _load(model_class, folder, config, dtype)
    with _refused_by_name(model_class), torch.inference_mode():
        fallback = FallbackModel(model, survey_attention(model, config, longest))
        _prove(fallback, config.vocab_size)
    return LoadedModel(fallback, config.model_type, config.vocab_size, longest)


def _prove(fallback: FallbackModel, vocab_size: int) -> None:
    """Leaves the model with the attention that it is served with."""
    sequences = random_sequences(vocab_size)
    fallback.model.set_attn_implementation("eager")
    expected = own_logits(fallback.model, sequences)
    fallback.model.set_attn_implementation(PAGED)
    if expected.shape[-1] != vocab_size:
        raise ModelLoadError(f"it has logits for {expected.shape[-1]} tokens, but config says vocab_size {vocab_size}")
    check(fallback, sequences, expected)


def _load(
    model_class: type[PreTrainedModel], folder: Path, config: PretrainedConfig, dtype: torch.dtype
) -> PreTrainedModel:
    """Raises ``ModelLoadError`` if the weights are not exactly those that the model has."""
    try:
        loaded: Any = model_class.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=SURVEY,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # transformers lets through whatever its parts raise.
        raise ModelLoadError(f"{folder} cannot be loaded by transformers: {error}") from error
    model: PreTrainedModel = loaded[0]
    found: dict[str, set[str]] = loaded[1]
    for reason, names in (("lacks", found["missing_keys"]), ("has unknown", found["unexpected_keys"])):
        if names:
            raise ModelLoadError(f"{folder} {reason} {listed(sorted(names))}")
    return model


@contextmanager
def _refused_by_name(model_class: type[PreTrainedModel]) -> Iterator[None]:
    """Whatever is raised within is a reason why the model cannot be served."""
    try:
        yield
    except ModelLoadError as error:
        raise ModelLoadError(f"{model_class.__name__} is not supported: {error}") from error
    except Exception as error:  # a model's code, run in a way that it may not expect
        raise ModelLoadError(
            f"{model_class.__name__} is not supported: it does not run on a paged cache: {error}"
        ) from error


def _log_with_ours() -> None:
    """Let what transformers logs go where our logs go, in their form."""
    logging.disable_default_handler()
    logging.enable_propagation()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
