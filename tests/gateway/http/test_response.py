"""Answers as bytes, parsed with h11."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.errors import Problem
from gateway.http.response import Response, refusal

TEXT = [(b"content-type", b"text/plain")]


def parsed(data: bytes, *, method: str = "GET", version: str = "1.1") -> tuple[int, bytes]:
    """Status and body, as h11 reads them when the connection ends after ``data``."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    client.receive_data(b"")
    status, body = 0, b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        else:
            raise AssertionError(event)
    return status, body


@given(
    pieces=st.lists(st.binary(max_size=40), min_size=1, max_size=6),
    version=st.sampled_from(["1.0", "1.1"]),
    probes=st.lists(st.integers(0, 3), min_size=7, max_size=7),
    has_length=st.booleans(),
)
def test_probes_keep_the_answer_readable(
    pieces: list[bytes], version: str, probes: list[int], has_length: bool
) -> None:
    response = Response("GET", version, keep_alive=True)
    headers = [*TEXT, (b"content-length", b"%d" % sum(map(len, pieces)))] if has_length else TEXT
    data = b"".join(response.probe() for _ in range(probes[0])) + response.start(200, headers)
    for index, piece in enumerate(pieces):
        data += b"".join(response.probe() for _ in range(probes[index + 1]))
        data += response.body(piece, is_last=index == len(pieces) - 1)
    assert parsed(data) == (200, b"".join(pieces))
    assert response.keep_alive == (has_length or version == "1.1")
    assert (b"chunked" in data.partition(b"\r\n\r\n")[0]) == (version == "1.1" and not has_length)


def test_probes_before_the_head_are_limited() -> None:
    response = Response("GET", "1.1", keep_alive=False)
    assert b"".join(response.probe() for _ in range(20)) + b"200" == b"HTTP/1.1 200"
    assert response.start(200, []).startswith(b"200 OK\r\n")


@pytest.mark.parametrize(
    ("version", "keep_alive", "line"),
    [("1.1", True, b""), ("1.1", False, b"connection: close"), ("1.0", True, b"connection: keep-alive"),
     ("1.0", False, b"connection: close")],
)  # fmt: skip
def test_connection_header(version: str, keep_alive: bool, line: bytes) -> None:
    head = Response("GET", version, keep_alive=keep_alive).start(200, [(b"content-length", b"0")])
    assert [each for each in head.split(b"\r\n") if each.startswith(b"connection")] == ([line] if line else [])


def test_application_can_close_the_connection() -> None:
    response = Response("GET", "1.1", keep_alive=True)
    assert response.start(408, [(b"connection", b"close"), (b"content-length", b"0")]).count(b"connection: close") == 1
    assert not response.keep_alive


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_answers_without_a_body(method: str, status: int) -> None:
    response = Response(method, "1.1", keep_alive=True)
    data = response.start(status, [(b"content-length", b"5")] if method == "HEAD" else [])
    assert data.endswith(b"\r\n\r\n")
    assert b"chunked" not in data
    assert response.body(b"hello", is_last=True) == b""


@pytest.mark.parametrize("pieces", [[b"abcdef"], [b"abc", b"def"], [b"abcd"], [b""]])
def test_body_must_match_content_length(pieces: list[bytes]) -> None:
    response = Response("GET", "1.1", keep_alive=True)
    response.start(200, [(b"content-length", b"5")])
    with pytest.raises(ValueError, match="length"):
        [response.body(piece, is_last=index == len(pieces) - 1) for index, piece in enumerate(pieces)]


@pytest.mark.parametrize("value", [b"a\r\nb: c", b"a\nb", b"a\x00", b"\x7f"])
def test_control_characters_in_headers_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="control"):
        Response("GET", "1.1", keep_alive=True).start(200, [(b"x", value)])


def test_refusal_is_a_complete_response() -> None:
    problem = Problem(400, "no")
    assert parsed(refusal(problem)) == (400, problem.body)
