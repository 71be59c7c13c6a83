"""The head of a request: size limit, and the checks of RFC 9112 against request smuggling.

If a proxy and a server disagree on where a body ends, its rest can be made to look like another request. So a head with
ambiguous framing is refused, and so is one without a Host.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import httptools

from gateway.http.errors import Problem
from gateway.policy.limits import MAX_HEAD_BYTES

TOO_LARGE: Final = Problem.of_status(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
_HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")
"""``uri-host [":" port]`` of RFC 3986, loosely: only the characters are checked."""

Headers = Sequence[tuple[bytes, bytes]]


class Refused(Exception):
    """A request that is answered with ``problem`` before it reaches the application."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def bad_request(message: str) -> Problem:
    """The response to a message that violates HTTP."""
    return Problem(HTTPStatus.BAD_REQUEST, message)


@dataclass(frozen=True, slots=True)
class Head:
    """A checked head. ``path`` is decoded, ``raw_path`` is not; header names are lower case."""

    method: str
    version: str
    path: str
    raw_path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]

    @property
    def expects_continue(self) -> bool:
        """The client waits for ``100 Continue`` before it sends the body. Not part of HTTP/1.0."""
        return self.version != "1.0" and any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers
        )


class HeadReader:
    """Collects the pieces of one head. Raises ``Refused`` beyond ``MAX_HEAD_BYTES``."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self._size = 0

    def add_url(self, url: bytes) -> None:
        self._count(len(url))
        self.url += url

    def add_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        self.headers.append((name.lower(), value))

    def finish(self, method: bytes, version: str) -> Head:
        """The whole head. Raises ``Refused`` for other versions than 1.0 and 1.1, and for an unsafe head."""
        check_version(version)
        check_framing(self.headers, version)
        check_host(self.headers, version)
        try:
            url = httptools.parse_url(self.url)
            path = url.path.decode("ascii")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError, AttributeError):
            raise Refused(bad_request("the request target must be a path or an absolute URL")) from None
        return Head(
            method.decode("ascii"), version, urllib.parse.unquote(path), url.path, url.query or b"", self.headers
        )

    @property
    def offers_upgrade(self) -> bool:
        return any(name == b"upgrade" for name, _ in self.headers)

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > MAX_HEAD_BYTES:
            raise Refused(TOO_LARGE)


def check_version(version: str) -> None:
    """HTTP/0.9 has no status line, and an HTTP/2 client would not understand the answer."""
    if version not in ("1.0", "1.1"):
        message = f"HTTP/{version} is not supported; use HTTP/1.1"
        code = "http_version_not_supported"
        raise Refused(Problem(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, message, code=code))


def check_framing(headers: Headers, version: str) -> None:
    """RFC 9112, 6.1 and 6.3: the body's length must be given once, in one way."""
    codings = [
        coding.strip().lower()
        for name, value in headers
        if name == b"transfer-encoding"
        for coding in value.split(b",")
    ]
    lengths = [value for name, value in headers if name == b"content-length"]
    if len(lengths) > 1:
        raise Refused(bad_request("content-length must be given once"))
    if not codings:
        return
    if lengths:
        raise Refused(bad_request("content-length and transfer-encoding must not be combined"))
    if version == "1.0":
        raise Refused(bad_request("transfer-encoding is not supported in HTTP/1.0"))
    if codings.count(b"chunked") != 1 or codings[-1] != b"chunked":
        raise Refused(bad_request("transfer-encoding must end with chunked"))
    if len(codings) > 1:
        message = "transfer-encoding must be chunked and nothing else"
        raise Refused(Problem(HTTPStatus.NOT_IMPLEMENTED, message, code="not_implemented"))


def check_host(headers: Headers, version: str) -> None:
    """RFC 9112, 3.2: exactly one Host; optional in HTTP/1.0."""
    hosts = [value for name, value in headers if name == b"host"]
    if not hosts and version != "1.0":
        raise Refused(bad_request("the Host header is missing"))
    if len(hosts) > 1:
        raise Refused(bad_request("the Host header must be given once"))
    if hosts and not _HOST.fullmatch(hosts[0].strip()):
        raise Refused(bad_request("the Host header must be a host name or address, with an optional port"))
