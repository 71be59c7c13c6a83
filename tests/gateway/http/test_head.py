"""Heads: which are refused, with which status, and which are not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.head import HeadReader, Refused, check_framing, check_host
from gateway.policy.limits import MAX_HEAD_BYTES
from tests.gateway.http.wire import answer_to, chat, chat_body
from tests.gateway.running import Stack


def refused_with(head: bytes, stack: Stack) -> tuple[int, str]:
    status, headers, body = answer_to(stack, head)
    assert headers["connection"] == "close"
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(body)
    return status, json.loads(body)["error"]["message"]


@pytest.mark.parametrize(
    ("codings", "status"),
    [("gzip, chunked", 501), ("identity, chunked", 501), ("deflate,gzip,chunked", 501), ("chunked, gzip", 400),
     ("chunked, chunked", 400), ("gzip", 400), ("identity", 400), ("xchunked", 400), ("", 400), ("chunked,", 400),
     (",chunked", 501)],
)  # fmt: skip
def test_other_transfer_codings_are_refused(shared: Stack, codings: str, status: int) -> None:
    body = chat_body(model="simulated", max_tokens=1)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: {codings}\r\n\r\n".encode()
    found, message = refused_with(head + chunked, shared)
    assert found == status
    assert "ransfer" in message


@pytest.mark.parametrize("codings", ["chunked", "Chunked", " chunked "])
def test_a_chunked_body_is_read(shared: Stack, codings: str) -> None:
    body = chat_body(model="simulated", max_tokens=1)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding:{codings}\r\n\r\n"
    assert answer_to(shared, head.encode() + chunked)[0] == 200


@pytest.mark.parametrize("first", ["content-length: 5", "transfer-encoding: chunked"])
def test_content_length_with_transfer_encoding(shared: Stack, first: str) -> None:
    lines = sorted(["content-length: 5", "transfer-encoding: chunked"], key=lambda line: line != first)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + "\r\n".join(lines) + "\r\n\r\n0\r\n\r\n"
    status, message = refused_with(head.encode(), shared)
    assert status == 400
    assert "content-length" in message.lower()


@pytest.mark.parametrize("second", ["5", "6"])
def test_two_content_lengths(shared: Stack, second: str) -> None:
    head = f"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: {second}\r\n\r\nabcde"
    assert refused_with(head.encode(), shared)[0] == 400


@pytest.mark.parametrize("length", ["+5", "-5", "0x5", "5, 5", "5 5", "", "99999999999999999999999"])
def test_invalid_content_lengths(shared: Stack, length: str) -> None:
    head = f"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\nabcde"
    assert refused_with(head.encode(), shared)[0] == 400


def test_http_1_0_with_transfer_encoding(shared: Stack) -> None:
    head = b"POST /v1/models HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    assert refused_with(head, shared)[0] == 400


@pytest.mark.parametrize(
    "head",
    [b"GET /health HTTP/1.1\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
     b"GET /health HTTP/1.1\r\nhost: a b\r\n\r\n", b"GET /health HTTP/1.1\r\nhost: a/b\r\n\r\n",
     b"GET /health HTTP/1.1\r\nhost: a@b\r\n\r\n", b"GET /health HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n"],
)  # fmt: skip
def test_host_is_required_once(shared: Stack, head: bytes) -> None:
    status, message = refused_with(head, shared)
    assert status == 400
    assert "Host" in message


@pytest.mark.parametrize("host", [b"x", b"x:8000", b"[::1]:8000", b"", b"a-b.example.org", b"127.0.0.1:1", b"a_b"])
def test_hosts(shared: Stack, host: bytes) -> None:
    assert answer_to(shared, b"GET /health HTTP/1.1\r\nconnection: close\r\nhost: %s\r\n\r\n" % host)[0] == 200


def test_http_1_0_needs_no_host(shared: Stack) -> None:
    assert answer_to(shared, b"GET /health HTTP/1.0\r\n\r\n")[0] == 200


@pytest.mark.parametrize("line", [b"GET /health\r\n\r\n", b"GET /health HTTP/0.9\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n"])
def test_other_versions(shared: Stack, line: bytes) -> None:
    status, headers, body = answer_to(shared, line)
    assert (status, headers["connection"]) == (505, "close")
    assert json.loads(body)["error"]["code"] == "http_version_not_supported"


@pytest.mark.parametrize("target", [b"*", b"x", b"http://"])
def test_invalid_request_targets(shared: Stack, target: bytes) -> None:
    assert answer_to(shared, b"OPTIONS %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % target)[0] in (400, 404)


def test_absolute_url_as_request_target(shared: Stack) -> None:
    head = b"GET http://elsewhere:80/health?x=1 HTTP/1.1\r\nhost: elsewhere\r\nconnection: close\r\n\r\n"
    assert answer_to(shared, head)[0] == 200


def test_a_request_without_content_type_is_json(shared: Stack) -> None:
    body = chat_body(model="simulated", max_tokens=1)
    without = chat(body, "connection: close").replace(b"content-type: application/json\r\n", b"")
    assert answer_to(shared, without)[0] == 200
    form = without.replace(b"host: x", b"host: x\r\ncontent-type: application/x-www-form-urlencoded")
    status, _, refused = answer_to(shared, form)
    assert status == 415
    assert "application/x-www-form-urlencoded" in json.loads(refused)["error"]["message"]


def test_a_head_at_the_limit_and_one_above() -> None:
    head = HeadReader()
    head.add_header(b"x", b"a" * (MAX_HEAD_BYTES - 1))
    with pytest.raises(Refused):
        head.add_url(b"a")


@given(st.lists(st.sampled_from([b"chunked", b"gzip", b"identity", b"CHUNKED", b""]), min_size=1, max_size=4))
def test_only_chunked_alone_is_allowed(codings: list[bytes]) -> None:
    def is_let_through(headers: list[tuple[bytes, bytes]]) -> bool:
        try:
            check_framing(headers, "1.1")
        except Refused:
            return False
        return True

    joined = is_let_through([(b"transfer-encoding", b", ".join(codings))])
    apart = is_let_through([(b"transfer-encoding", coding) for coding in codings])
    assert joined == apart == ([coding.lower() for coding in codings] == [b"chunked"])


@given(st.binary(max_size=20))
def test_allowed_hosts_have_no_special_characters(host: bytes) -> None:
    try:
        check_host([(b"host", host)], "1.1")
    except Refused:
        return
    assert not set(host.strip()) & set(b' /?#@\\\r\n\t<>"{}|^`')
