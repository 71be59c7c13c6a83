"""A step of a real model: prepare its tensors, run the executor, sample. Independent of the executor."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import torch

from engine_svc.executors.cache import CacheSize
from engine_svc.executors.interface import Executor
from engine_svc.executors.load_request import LoadRequest
from engine_svc.executors.loading import load_executor
from engine_svc.output import Sampled
from engine_svc.runners.interface import RunnerInfo
from engine_svc.runners.prepare import prepare
from engine_svc.sampling.logit_rows import LogitRows
from engine_svc.sampling.logprobs import add_prompt_logprobs
from engine_svc.sampling.sampler import Sampler, row_operations
from engine_svc.scheduling.sequence import Sequence
from engine_svc.scheduling.step import ScheduledSequence
from engine_svc.weights.checkpoint import open_checkpoint
from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.source import locate


class ModelRunner:
    """See ``engine_svc.runners.interface.Runner``."""

    def __init__(self, executor: Executor, info: RunnerInfo, *, max_num_batched_tokens: int) -> None:
        self._executor = executor
        self._info = info
        self._max_num_batched_tokens = max_num_batched_tokens
        self._sampler = Sampler(row_operations(executor.device))

    @property
    def info(self) -> RunnerInfo:
        return self._info

    @torch.inference_mode()
    def execute(self, batch: SequenceOf[ScheduledSequence]) -> list[Sampled | Exception]:
        num_tokens = sum(entry.num_tokens for entry in batch)
        assert num_tokens <= self._max_num_batched_tokens, f"{num_tokens} tokens in one step"
        if not batch:
            return []
        executor = self._executor
        step = prepare(batch, executor.info.cache.block_size, executor.device)
        return self._sample(batch, executor.forward(step), step.num_samples)

    def release(self, sequence: Sequence) -> None:
        self._sampler.release(sequence)

    def _sample(
        self, batch: SequenceOf[ScheduledSequence], logits: LogitRows, num_samples: int
    ) -> list[Sampled | Exception]:
        """Sample from the first ``num_samples`` rows; the others are rows of prompts."""
        sampling = [entry for entry in batch if entry.samples]
        sequences, drafts = [entry.sequence for entry in sampling], [entry.drafts for entry in sampling]
        sampled = self._sampler.sample(logits[:num_samples], sequences, drafts)
        if num_samples == len(logits):
            return sampled
        return add_prompt_logprobs(batch, sampled, logits, num_samples, self._info.vocab_size)


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
    executor: str = "auto",
    quantization: str = "auto",
    deterministic: bool = False,
    kv_cache_dtype: str = "auto",
) -> ModelRunner:
    """Load a model from a folder, a .gguf file or a Hugging Face id.

    ``max_model_len`` of None takes the model's own limit. The KV cache has ``num_blocks`` blocks, or as many as fit
    ``kv_cache_bytes``. ``num_threads`` of None leaves torch's choice. The rest is as in
    ``engine_svc.executors.load_request``. Raises ``ModelLoadError`` if the model or a setting is not supported.
    """
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    path = locate(model)
    request = LoadRequest(
        open_checkpoint(path),
        CacheSize(block_size, num_blocks, kv_cache_bytes),
        path if path.is_dir() else None,
        executor,
        dtype,
        quantization,
        attention_backend,
        deterministic,
        kv_cache_dtype,
    )
    loaded = load_executor(request)
    info = _info(model, request, loaded, max_model_len)
    return ModelRunner(loaded, info, max_num_batched_tokens=max_num_batched_tokens)


def _info(model: str, request: LoadRequest, executor: Executor, max_model_len: int | None) -> RunnerInfo:
    found = executor.info
    return RunnerInfo(
        model_path=model,
        model_type=found.model_type,
        dtype=found.dtype,
        cache_dtype=str(found.cache.dtype).removeprefix("torch."),
        vocab_size=found.vocab_size,
        max_model_len=_model_len(max_model_len, found.max_position_embeddings),
        num_blocks=found.cache.num_blocks,
        eos_token_ids=request.checkpoint.eos_token_ids,
        batch_invariant=found.batch_invariant,
        kv_cache_bytes=found.cache.num_bytes,
    )


def _model_len(requested: int | None, limit: int) -> int:
    if requested is not None and not 1 <= requested <= limit:
        raise ModelLoadError(
            f"max_model_len must be between 1 and {limit}, the context length of this model, not {requested}"
        )
    return limit if requested is None else requested
