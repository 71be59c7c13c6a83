"""Settings of the tokenizer: ``TOKENIZER_*``, or flags of the same names."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from protos import simulated
from svclib.config import ServiceSettings
from tokenizer_svc.limits import DEFAULT_MEMORY_MB, DEFAULT_PROMPT_CHARS, DEFAULT_SECONDS


class TokenizerSettings(ServiceSettings):
    """What the tokenizer is told."""

    model_config = SettingsConfigDict(env_prefix="TOKENIZER_")

    port: int = Field(default=50051, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    metrics_port: int = Field(default=9101, ge=0, le=65535, description="port of /metrics; 0 takes a free one")
    model: str = Field(
        default=simulated.MODEL_NAME,
        min_length=1,
        description="Hugging Face id, folder or .gguf file of the model, or 'simulated'",
    )
    tokenizer: str = Field(default="", description="where to take tokenizer and chat template from, if not the model")
    chat_template: Path | None = Field(default=None, description="file with a chat template instead of the model's own")
    workers: int = Field(
        default=4,
        ge=1,
        le=256,
        description="calls rendered and encoded at once, and child processes for templates",
    )
    max_waiting: int = Field(default=256, ge=0, description="maximum calls waiting; more are refused as overload")
    max_prompt_chars: int = Field(
        default=DEFAULT_PROMPT_CHARS, ge=1, description="maximum characters of a conversation or a text"
    )
    render_seconds: float = Field(
        default=DEFAULT_SECONDS, gt=0, le=600, description="time limit of a chat template, seconds"
    )
    render_memory_mb: int = Field(default=DEFAULT_MEMORY_MB, ge=64, description="memory limit of a chat template, MiB")

    @property
    def source(self) -> str:
        """Where the tokenizer is."""
        return self.tokenizer or self.model
