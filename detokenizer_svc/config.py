"""Settings of the detokenizer: ``DETOKENIZER_*``, or flags of the same names."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from protos import simulated
from svclib.config import ServiceSettings


class DetokenizerSettings(ServiceSettings):
    """Settings, from flags and environment."""

    model_config = SettingsConfigDict(env_prefix="DETOKENIZER_")

    port: int = Field(default=50053, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    metrics_port: int = Field(default=9103, ge=0, le=65535, description="port of /metrics; 0 picks a free one")
    model: str = Field(
        default=simulated.MODEL_NAME,
        min_length=1,
        description="Hugging Face id, folder or .gguf file of the model, or 'simulated'",
    )
    tokenizer: str = Field(default="", description="source of the vocabulary, if it is not the model")

    @property
    def vocabulary_source(self) -> str:
        """Hugging Face id, folder or file of the vocabulary."""
        return self.tokenizer or self.model
