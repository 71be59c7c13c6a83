"""Structured logs: one JSON object per line, or coloured console lines. Every line of a request has its id."""

from __future__ import annotations

import asyncio
import logging
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from svclib.config import ServiceSettings


def configure(settings: ServiceSettings, service: str) -> None:
    """Send all logs of this process, including the standard library's, to standard error in the chosen format."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _naming(service),
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_rendering(settings)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_not_cancellation)


def _is_not_cancellation(record: logging.LogRecord) -> bool:
    # grpc.aio logs a handler that is cancelled, by a client that left or by shutdown, as an error.
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _rendering(settings: ServiceSettings) -> list[Processor]:
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if settings.log_format == "console":
        return [remove_meta, _console()]
    return [remove_meta, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _console() -> Processor:
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)


def _naming(service: str) -> Processor:
    def add_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        return event

    return add_service
