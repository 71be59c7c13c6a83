"""From a Hugging Face folder of a model that is not native to an executor with transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from engine_svc.attention.backends import create_backend
from engine_svc.executors.interface import ExecutorInfo
from engine_svc.executors.load_request import LoadRequest
from engine_svc.executors.transformers.attention import PAGED
from engine_svc.executors.transformers.checks import find_class, longest_sequence, read_config
from engine_svc.executors.transformers.executor import TransformersExecutor
from engine_svc.executors.transformers.model import TransformersModel
from engine_svc.executors.transformers.proof import check, own_logits, random_sequences
from engine_svc.executors.transformers.survey import SURVEY, survey_attention
from engine_svc.models.config import RawConfig
from engine_svc.models.precision import DTYPES, resolve_format
from engine_svc.models.registry import reason_against_native
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.loading import join_names


def load_transformers(request: LoadRequest) -> TransformersExecutor:
    """See ``engine_svc.executors.loading.load_executor``. Needs a Hugging Face folder; code in it is never run."""
    folder = _check(request)
    try:
        model, info = _load_checked(request, folder)
    except ModelLoadError as error:
        raise _with_reason(error, request) from error
    backend = create_backend(
        request.attention_backend,
        request.with_cache(model.attention_config),
        request.kernels,
        num_blocks=info.cache.num_blocks,
        block_size=info.cache.block_size,
    )
    return TransformersExecutor(model, backend, info)


def _check(request: LoadRequest) -> Path:
    """Raises ``ModelLoadError`` for settings that no transformers model supports."""
    if request.folder is None:
        raise ModelLoadError("executor transformers: the model must be a Hugging Face folder, not a GGUF file")
    if request.quantization not in ("auto", "none"):
        reason = reason_against_native(request.checkpoint.config) or "this model is computed by transformers"
        raise ModelLoadError(f"quantization {request.quantization} is for native families only: {reason}")
    if request.deterministic:
        raise ModelLoadError("deterministic is for native families only: this model is computed by transformers")
    return request.folder


def _with_reason(error: ModelLoadError, request: LoadRequest) -> ModelLoadError:
    """Add the reason why the model is not native."""
    reason = reason_against_native(request.checkpoint.config)
    return error if reason is None else ModelLoadError(f"{error}. It is not native either: {reason}")


def _load_checked(request: LoadRequest, folder: Path) -> tuple[TransformersModel, ExecutorInfo]:
    _log_with_ours()
    config = read_config(folder, RawConfig(request.checkpoint.config))
    model_class = find_class(config)
    longest = longest_sequence(config)
    format_ = resolve_format(request.dtype, "none", request.checkpoint, None)
    loaded = _load(model_class, folder, config, DTYPES[format_])
    with _refused_by_name(model_class), torch.inference_mode():
        model = TransformersModel(loaded, survey_attention(loaded, config, longest))
        _check_logits(model, config.vocab_size)
    attention = request.with_cache(model.attention_config)
    cache = request.cache.layout(attention.cache_dtype, attention.kv_bytes_per_token)
    return model, ExecutorInfo(config.model_type, format_.name.lower(), config.vocab_size, longest, cache)


def _check_logits(model: TransformersModel, vocab_size: int) -> None:
    """Compare paged logits with the model's own, and leave it with paged attention."""
    sequences = random_sequences(vocab_size)
    model.model.set_attn_implementation("eager")
    expected = own_logits(model.model, sequences)
    model.model.set_attn_implementation(PAGED)
    if expected.shape[-1] != vocab_size:
        raise ModelLoadError(f"logits have {expected.shape[-1]} columns, but config has vocab_size {vocab_size}")
    check(model, sequences, expected)


def _load(
    model_class: type[PreTrainedModel], folder: Path, config: PretrainedConfig, dtype: torch.dtype
) -> PreTrainedModel:
    """Raises ``ModelLoadError`` if weights are missing or unknown."""
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
    except Exception as error:  # transformers raises many kinds of errors.
        raise ModelLoadError(f"transformers cannot load {folder}: {error}") from error
    model: PreTrainedModel = loaded[0]
    found: dict[str, set[str]] = loaded[1]
    for reason, names in (("lacks", found["missing_keys"]), ("has unknown", found["unexpected_keys"])):
        if names:
            raise ModelLoadError(f"{folder} {reason} {join_names(sorted(names))}")
    return model


@contextmanager
def _refused_by_name(model_class: type[PreTrainedModel]) -> Iterator[None]:
    """Turn any exception into a ``ModelLoadError`` that names the model class."""
    try:
        yield
    except ModelLoadError as error:
        raise ModelLoadError(f"{model_class.__name__} is not supported: {error}") from error
    except Exception as error:  # from the model's code
        raise ModelLoadError(
            f"{model_class.__name__} is not supported: it does not run on a paged KV cache: {error}"
        ) from error


def _log_with_ours() -> None:
    """Send transformers' log records through our handlers."""
    logging.disable_default_handler()
    logging.enable_propagation()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
