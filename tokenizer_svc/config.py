"""Settings of the tokenizer: ``TOKENIZER_*``, or flags of the same names."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from protos import simulated
from svclib.config import ServiceSettings
from tokenizer_svc.limits import DEFAULT_MEMORY_MB, DEFAULT_PROMPT_CHARS, DEFAULT_SECONDS


class TokenizerSettings(ServiceSettings):
    """Settings, from flags and environment."""

    model_config = SettingsConfigDict(env_prefix="TOKENIZER_")

    port: int = Field(default=50051, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    metrics_port: int = Field(default=9101, ge=0, le=65535, description="port of /metrics; 0 picks a free one")
    model: str = Field(
        default=simulated.MODEL_NAME,
        min_length=1,
        description="Hugging Face id, folder or .gguf file of the model, or 'simulated'",
    )
    tokenizer: str = Field(default="", description="source of tokenizer and chat template, if it is not the model")
    chat_template: Path | None = Field(default=None, description="file with a chat template that replaces the model's")
    workers: int = Field(
        default=4,
        ge=1,
        le=256,
        description="maximum calls rendered and encoded at once; also the number of child processes for templates",
    )
    max_waiting: int = Field(default=256, ge=0, description="maximum waiting calls; more are refused as overload")
    max_prompt_chars: int = Field(
        default=DEFAULT_PROMPT_CHARS, ge=1, description="maximum characters of a conversation or text"
    )
    render_seconds: float = Field(
        default=DEFAULT_SECONDS, gt=0, le=600, description="time limit of one rendering, seconds"
    )
    render_memory_mb: int = Field(default=DEFAULT_MEMORY_MB, ge=64, description="memory limit of one rendering, MiB")

    @property
    def source(self) -> str:
        """Hugging Face id, folder or file of the tokenizer."""
        return self.tokenizer or self.model
