"""Runs a model on this machine's CPU: loads it, owns its cache, computes steps."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import torch
from torch import Tensor

from engine_svc.attention.backends import create_backend, find_kernels
from engine_svc.attention.interface import AttentionBackend, AttentionConfig
from engine_svc.execution.runner import Runner, RunnerInfo, ScheduledSequence
from engine_svc.executors.loading import load_model
from engine_svc.executors.prepare import prepare
from engine_svc.models.causal_lm import CausalLM
from engine_svc.models.independent_rows import make_rows_independent
from engine_svc.models.precision import resolve_format
from engine_svc.request import Sampled
from engine_svc.sampling.prompt_logprobs import add_prompt_logprobs
from engine_svc.sampling.sampler import Sampler
from engine_svc.scheduling.sequence import Sequence
from engine_svc.weights.checkpoint import open_checkpoint
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.source import locate


class ModelRunner:
    """See ``engine_svc.execution.runner.Runner``."""

    def __init__(
        self,
        model: CausalLM,
        attention: AttentionBackend,
        info: RunnerInfo,
        *,
        block_size: int,
        max_num_batched_tokens: int,
    ) -> None:
        self._model = model
        self._attention = attention
        self._info = info
        self._block_size = block_size
        self._max_num_batched_tokens = max_num_batched_tokens
        self._sampler = Sampler()

    @property
    def info(self) -> RunnerInfo:
        return self._info

    @torch.inference_mode()
    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        num_tokens = sum(entry.num_tokens for entry in batch)
        assert num_tokens <= self._max_num_batched_tokens, f"{num_tokens} tokens in one step"
        if not batch:
            return []
        step = prepare(batch, self._block_size)
        attention = self._attention.begin(step.paged)
        hidden = self._model(step.input_ids, step.positions, attention, step.rows)
        sampling, prompts = hidden[: step.num_samples], hidden[step.num_samples :]
        sampled = self._sample(self._model.logits(sampling), [entry for entry in batch if entry.samples])
        if not len(prompts):
            return sampled
        return add_prompt_logprobs(batch, sampled, prompts, self._model.logits, self._info.vocab_size)

    def forget(self, sequence: Sequence) -> None:
        self._sampler.forget(sequence)

    def _sample(self, logits: Tensor, batch: list[ScheduledSequence]) -> list[Sampled | Exception]:
        sequences, drafts = [entry.sequence for entry in batch], [entry.drafts for entry in batch]
        return self._sampler.sample(logits, sequences, drafts)


def load_model_runner(
    *,
    model: str,
    dtype: str,
    max_model_len: int | None,
    block_size: int,
    kv_cache_bytes: int,
    num_blocks: int | None,
    num_threads: int | None,
    max_num_batched_tokens: int,
    attention_backend: str,
    quantization: str = "auto",
    deterministic: bool = False,
) -> Runner:
    """Load a model from a folder, a .gguf file or a Hugging Face id.

    ``dtype`` and ``quantization`` as in ``engine_svc.models.precision.resolve_format``. ``max_model_len`` of
    None takes the model's own limit. The cache has ``num_blocks`` blocks, or as many as fit ``kv_cache_bytes``.
    ``num_threads`` of None leaves torch's choice. ``attention_backend`` as in ``engine_svc.attention.backends``. With
    ``deterministic`` what a request gets depends on nothing but the request. Raises ``ModelLoadError`` if the model or
    these settings will not do.
    """
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    checkpoint = open_checkpoint(locate(model))
    kernels = find_kernels(attention_backend)
    format_ = resolve_format(dtype, quantization, checkpoint, kernels)
    loaded = load_model(checkpoint, format_, kernels)
    decoder = loaded.model
    if deterministic and not loaded.rows_are_independent:
        make_rows_independent(decoder)
    blocks = num_blocks or _blocks_that_fit(decoder.attention_config, block_size, kv_cache_bytes)
    info = RunnerInfo(
        model_path=model,
        model_type=loaded.model_type,
        dtype=format_.name.lower(),
        cache_dtype=str(decoder.dtype).removeprefix("torch."),
        vocab_size=loaded.vocab_size,
        max_model_len=_model_len(max_model_len, loaded.max_position_embeddings),
        num_blocks=blocks,
        eos_token_ids=checkpoint.eos_token_ids,
        rows_are_independent=loaded.rows_are_independent or deterministic,
        kv_cache_bytes=blocks * block_size * decoder.attention_config.kv_bytes_per_token,
    )
    attention = create_backend(
        attention_backend,
        decoder.attention_config,
        kernels,
        num_blocks=blocks,
        block_size=block_size,
        independent_rows=deterministic,
    )
    return ModelRunner(decoder, attention, info, block_size=block_size, max_num_batched_tokens=max_num_batched_tokens)


def _model_len(wanted: int | None, limit: int) -> int:
    if wanted is not None and not 1 <= wanted <= limit:
        raise ModelLoadError(f"max_model_len {wanted} is not between 1 and {limit}, the longest context of this model")
    return limit if wanted is None else wanted


def _blocks_that_fit(config: AttentionConfig, block_size: int, num_bytes: int) -> int:
    block_bytes = block_size * config.kv_bytes_per_token
    if num_bytes < block_bytes:
        raise ModelLoadError(f"a cache of {num_bytes} bytes does not hold one block of {block_bytes} bytes")
    return num_bytes // block_bytes
