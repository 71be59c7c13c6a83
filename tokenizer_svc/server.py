"""The tokenizer as a service: loading, serving, shutdown."""

from __future__ import annotations

import asyncio
import gc
from typing import Final

import grpc
import structlog
from prometheus_client import CollectorRegistry

from modelfiles.errors import ModelFileError
from modelfiles.tokenizer import load_tokenizer
from protos.v1 import tokenizer_pb2, tokenizer_pb2_grpc
from svclib.config import SettingsError
from svclib.health import Health
from tokenizer_svc.config import TokenizerSettings
from tokenizer_svc.limits import limits_of
from tokenizer_svc.metrics import TokenizerMetrics
from tokenizer_svc.pool import Pool
from tokenizer_svc.prompt_tokenizer import PromptTokenizer
from tokenizer_svc.renderer import Renderer
from tokenizer_svc.servicer import TokenizerServicer

SERVICE_NAME: Final = tokenizer_pb2.DESCRIPTOR.services_by_name["Tokenizer"].full_name

log = structlog.get_logger(__name__)


class TokenizerService:
    """See ``svclib.server.Service``."""

    name = "tokenizer"
    service_names = (SERVICE_NAME,)

    def __init__(self, settings: TokenizerSettings) -> None:
        self.registry = CollectorRegistry()
        self._settings = settings
        self._pool = Pool(settings.workers, settings.max_waiting)
        self._renderer: Renderer | None = None
        self._metrics = TokenizerMetrics(self.registry)
        self._metrics.watch_jobs(lambda: self._pool.num_jobs)
        self._servicer = TokenizerServicer(self._pool, self._metrics, settings.max_prompt_chars)

    def register(self, server: grpc.aio.Server) -> None:
        tokenizer_pb2_grpc.add_TokenizerServicer_to_server(self._servicer, server)

    async def start(self, _health: Health) -> None:
        # The child processes start while the tokenizer is loaded.
        settings = self._settings
        limits = limits_of(settings.render_seconds, settings.render_memory_mb, settings.max_prompt_chars)
        self._renderer = Renderer(settings.workers, limits)
        tokenizer = await asyncio.to_thread(_load, self._settings, self._renderer)
        if tokenizer.capabilities is None:
            self._renderer.close()
        gc.freeze()  # Loaded objects are permanent, so garbage collections after large inputs can skip them.
        self._servicer.use(tokenizer)
        self._metrics.describe(tokenizer)
        log.info(
            "tokenizer loaded",
            source=self._settings.source,
            tokens=tokenizer.vocab_size,
            template_version=tokenizer.template_version,
            tool_format=tokenizer.tool_format,
            reasoning_format=tokenizer.reasoning_format,
        )

    async def drain(self) -> None:
        await self._pool.drain()

    async def stop(self) -> None:
        self._pool.close()
        if self._renderer is not None:
            self._renderer.close()


def _load(settings: TokenizerSettings, renderer: Renderer) -> PromptTokenizer:
    try:
        loaded = load_tokenizer(settings.source, settings.chat_template)
    except ModelFileError as error:
        raise SettingsError(str(error)) from error
    return PromptTokenizer(loaded, renderer.template)
