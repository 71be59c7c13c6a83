"""A small client of OpenAI-compatible chat endpoints, with streaming.

Plain HTTP instead of the OpenAI package, because the chat shows what that package hides: the reasoning fields of
several vendors, error events in a stream, and a stream that ends without ``[DONE]``.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx2
from pydantic import SecretStr

from pellucid.errors import CommandError

_CONNECT_SECONDS: Final = 5.0
_DONE: Final = "[DONE]"
_MAX_EVENT_BYTES: Final = 16 * 1024 * 1024


class AnswerError(Exception):
    """The server refused or failed, or the connection broke. The message is for the user."""


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of an answer."""

    content: str = ""
    reasoning: str = ""
    finish_reason: str | None = None


class ChatClient:
    """A client of one server. A context manager, which closes its connections."""

    def __init__(self, url: str, api_key: SecretStr | None = None) -> None:
        headers = {"authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
        # No read timeout: the prefill of a long prompt may take long.
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        try:
            self._http = httpx2.Client(base_url=api_root(url), headers=headers, timeout=timeout)
        except httpx2.InvalidURL as error:
            raise CommandError(f"{url} is not a valid URL: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def model_names(self) -> list[str]:
        """Names of the models that the server lists. Raises ``AnswerError``."""
        with self._readable_errors():
            response = self._http.get("models")
            _raise_for(response)
            try:
                return [model["id"] for model in response.json()["data"]]
            except (ValueError, KeyError, TypeError):
                raise AnswerError("invalid list of models: the server is not OpenAI-compatible") from None

    def answer(self, model: str, messages: Sequence[Mapping[str, str]], **parameters: object) -> Generator[Piece]:
        """Stream an answer. Parameters that are None are omitted; closing the iterator stops generation.

        Raises ``AnswerError``, possibly after some pieces.
        """
        given = {name: value for name, value in parameters.items() if value is not None}
        body = {"model": model, "messages": messages, "stream": True, **given}
        with self._readable_errors(), self._http.stream("POST", "chat/completions", json=body) as response:
            if response.status_code != httpx2.codes.OK:
                response.read()
            _raise_for(response)
            for event in httpx2.EventSource(response, max_event_size=_MAX_EVENT_BYTES):
                if event.data == _DONE:
                    return
                yield from _pieces(_parse(event.data))
        raise AnswerError("the stream ended without [DONE]: the answer is incomplete")

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.ConnectError:
            raise AnswerError(f"cannot connect to {self._http.base_url}; is the server running?") from None
        except (httpx2.HTTPError, httpx2.SSEError, httpx2.InvalidURL) as error:
            raise AnswerError(f"connection error: {error or type(error).__name__}") from None


def api_root(url: str) -> str:
    """The base of API paths: ``url``, with ``/v1`` added if it has no path."""
    root = url.rstrip("/")
    if "://" not in root:
        root = f"http://{root}"
    return f"{root}/" if httpx2.URL(root).path not in ("", "/") else f"{root}/v1/"


def _raise_for(response: httpx2.Response) -> None:
    if response.status_code != httpx2.codes.OK:
        raise AnswerError(f"{_error_message(response.text)} (HTTP {response.status_code})")


def _error_message(text: str) -> str:
    """The message of an error body; the first 200 characters of any other body."""
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return text.strip()[:200] or "empty response"


def _parse(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise AnswerError("invalid event in the stream: not a JSON object")
    if event.get("error"):
        raise AnswerError(_error_message(data))
    return event


def _pieces(event: Mapping[str, Any]) -> Iterator[Piece]:
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        yield Piece(
            content=delta.get("content") or "",
            reasoning=delta.get("reasoning_content") or delta.get("reasoning") or "",
            finish_reason=choice.get("finish_reason"),
        )
