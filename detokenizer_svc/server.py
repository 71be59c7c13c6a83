"""The detokenizer as a service: loading, serving, shutdown."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
import structlog
from prometheus_client import CollectorRegistry

from detokenizer_svc.config import DetokenizerSettings
from detokenizer_svc.metrics import DetokenizerMetrics
from detokenizer_svc.servicer import DetokenizerServicer
from detokenizer_svc.vocabulary import Vocabulary
from modelfiles.errors import ModelFileError
from modelfiles.token_table import read_token_table
from protos.v1 import detokenizer_pb2, detokenizer_pb2_grpc
from svclib.config import SettingsError
from svclib.health import Health

SERVICE_NAME: Final = detokenizer_pb2.DESCRIPTOR.services_by_name["Detokenizer"].full_name

log = structlog.get_logger(__name__)


class DetokenizerService:
    """See ``svclib.server.Service``."""

    name = "detokenizer"
    service_names = (SERVICE_NAME,)

    def __init__(self, settings: DetokenizerSettings) -> None:
        self.registry = CollectorRegistry()
        self._settings = settings
        self._servicer = DetokenizerServicer(DetokenizerMetrics(self.registry))

    def register(self, server: grpc.aio.Server) -> None:
        detokenizer_pb2_grpc.add_DetokenizerServicer_to_server(self._servicer, server)

    async def start(self, _health: Health) -> None:
        vocabulary = await asyncio.to_thread(load_vocabulary, self._settings.vocabulary_source)
        self._servicer.use(vocabulary)
        log.info("vocabulary loaded", source=self._settings.vocabulary_source, tokens=len(vocabulary))

    async def drain(self) -> None:
        await self._servicer.sessions.drain()

    async def stop(self) -> None:
        """Nothing to release."""


def load_vocabulary(source: str) -> Vocabulary:
    """The vocabulary of ``simulated``, a GGUF file, a folder, or a Hugging Face id. Raises ``SettingsError``."""
    try:
        return Vocabulary.of_table(read_token_table(source))
    except ModelFileError as error:
        raise SettingsError(str(error)) from error
