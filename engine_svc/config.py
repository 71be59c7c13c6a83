"""Settings of the engine: ``ENGINE_*``, or the same names as flags."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from protos.simulated import MODEL_NAME
from svclib.config import ServiceSettings, SettingsError

_FOR_WEIGHTS: Final = frozenset(
    {
        "deterministic",
        "dtype",
        "executor",
        "kv_cache_dtype",
        "max_step_ms",
        "num_threads",
        "quantization",
        "speculation",
        "task",
    }
)
_FOR_SPECULATION: Final = frozenset({"num_speculative_tokens", "max_speculative_step_tokens"})
_FOR_GENERATING: Final = _FOR_SPECULATION | {
    "block_size",
    "deterministic",
    "enable_prefix_caching",
    "grammar_compile_seconds",
    "grammar_memory_mb",
    "kv_cache_dtype",
    "kv_cache_memory_mb",
    "max_num_seqs",
    "max_prefill_chunk",
    "max_step_ms",
    "max_waiting",
    "num_blocks",
    "quantization",
    "speculation",
}
_FOR_SIMULATION: Final = frozenset({"simulated_step_ms", "tokenizer"})


class Settings(ServiceSettings):
    """Settings of one engine process."""

    model_config = SettingsConfigDict(env_prefix="ENGINE_")

    port: int = Field(default=50052, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    metrics_port: int = Field(default=9102, ge=0, le=65535, description="port of /metrics; 0 picks a free one")

    model: str = Field(
        min_length=1,
        description="Hugging Face id, folder or .gguf file to load; `simulated` for a model that answers from scripts",
    )
    served_model: str = Field(default="", description="name of the model in metrics; empty takes it from `model`")
    task: Literal["auto", "generate", "embed"] = Field(
        default="auto", description="whether the model generates or embeds; auto decides by its files"
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="precision of weights, and of the KV cache unless `kv_cache_dtype` is set; auto takes what suits "
        "the weights",
    )
    quantization: Literal["auto", "none", "int16", "int8"] = Field(
        default="auto",
        description="`none` multiplies floats; `int8` multiplies weights of 8 bits, or 4 where stored so, by "
        "activations of 8 bits, 15 in groups with outliers; `int16` by activations of 15 bits throughout; `auto` is "
        "`int8` where weights are stored as integers, the processor is fast at it and no `dtype` is set, else `none`",
    )
    max_model_len: int | None = Field(
        default=None, ge=1, description="maximum tokens of prompt and output together; none takes the model's own limit"
    )
    num_threads: int | None = Field(default=None, ge=1, description="CPU threads of a step; none lets torch choose")
    executor: str = Field(
        default="auto",
        description="what computes the model: compiled kernels (`cpu`), plain torch (`torch`), `transformers`, or the "
        "first of them that can (`auto`, which is never `cpu` with `reference` attention)",
    )
    attention_backend: Literal["auto", "reference", "cpu"] = Field(
        default="auto",
        description="what computes attention: `cpu`, the compiled kernel, or `reference`, plain torch; auto "
        "prefers the kernel",
    )

    deterministic: bool = Field(
        default=False,
        description="batch-invariant: the same request gives the same tokens whatever else runs; slower in plain torch",
    )

    block_size: int = Field(default=16, ge=1, le=1024, description="tokens per block of the KV cache")
    kv_cache_dtype: Literal["auto", "int8"] = Field(
        default="auto",
        description="element type of the KV cache: `auto` is the `dtype`; `int8` holds nearly twice as many tokens in "
        "the same memory as bfloat16, with a scale for each token and KV head",
    )
    kv_cache_memory_mb: int = Field(default=512, ge=1, description="memory of the KV cache, MiB")
    num_blocks: int | None = Field(
        default=None, ge=1, description="blocks of the KV cache; none fills `kv_cache_memory_mb`"
    )
    enable_prefix_caching: bool = Field(
        default=True, description="prefix caching: reuse the blocks of prompt prefixes seen before"
    )

    max_num_seqs: int = Field(default=64, ge=1, description="maximum sequences per step")
    max_num_batched_tokens: int = Field(default=512, ge=1, description="token budget per step")
    max_prefill_chunk: int | None = Field(
        default=None,
        ge=1,
        description="chunked prefill: maximum tokens of one sequence per step; none takes the token budget, half of it "
        "while several prompts compete",
    )
    max_step_ms: float | None = Field(
        default=None,
        gt=0,
        le=60_000,
        description="while a sequence decodes, prompts get chunks so small that a step takes about this long at most; "
        "none: 5 times as long as without a prompt",
    )
    max_waiting: int = Field(default=512, ge=0, description="choices that may wait beyond `max_num_seqs`")

    speculation: Literal["auto", "ngram", "off"] = Field(
        default="auto",
        description="n-gram (prompt-lookup) speculative decoding; auto uses it where the model is batch-invariant",
    )
    num_speculative_tokens: int = Field(
        default=8, ge=1, le=64, description="maximum draft tokens of a sequence per step"
    )
    max_speculative_step_tokens: int = Field(
        default=32, ge=2, le=1024, description="a step gets draft tokens only up to this many tokens in all"
    )

    grammar_compile_seconds: float = Field(
        default=2.5,
        gt=0,
        le=600,
        description="CPU time to compile one constraint; its answer comes within 1.5 times as long, waiting included",
    )
    grammar_memory_mb: int = Field(
        default=256,
        ge=16,
        description="memory limit for compiling one constraint, and for all compiled constraints together, MiB",
    )

    stall_seconds: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="time without a finished step, with work to do, after which the engine is not ready",
    )

    tokenizer: str = Field(
        default="", description="Hugging Face id, folder or .gguf file whose vocabulary the simulated model uses"
    )
    simulated_step_ms: float = Field(default=0.0, ge=0, le=60_000, description="simulated model only: time per step")

    @property
    def simulated(self) -> bool:
        return self.model == MODEL_NAME

    @property
    def vocabulary_source(self) -> str:
        """The model or tokenizer whose vocabulary the output uses."""
        return self.tokenizer if self.simulated else self.model

    @property
    def model_name(self) -> str:
        """The label `model_name` in metrics."""
        return self.served_model or Path(self.model).name

    @model_validator(mode="after")
    def _check_effect(self) -> Self:
        """A setting without effect is an error."""
        unused, kind = (
            (_FOR_WEIGHTS, "models with weights") if self.simulated else (_FOR_SIMULATION, "the simulated model")
        )
        self._refuse(unused, kind)
        if self.simulated or self.speculation == "off":
            self._refuse(_FOR_SPECULATION, "speculation")
        return self

    def check_generation(self) -> None:
        """Check the settings of a model that generates. Raises ``SettingsError``."""
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise SettingsError(
                "max_num_batched_tokens must be at least max_num_seqs, so that every running sequence can progress"
            )

    def check_embedding(self) -> None:
        """Check that every setting has an effect on a model that embeds. Raises ``SettingsError``."""
        try:
            self._refuse(_FOR_GENERATING, "models that generate")
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def _refuse(self, unused: frozenset[str], kind: str) -> None:
        if given := sorted(unused & self.model_dump(exclude_defaults=True).keys()):
            raise ValueError(f"{', '.join(given)}: for {kind} only")
