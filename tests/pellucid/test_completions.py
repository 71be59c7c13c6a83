from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import SecretStr

from pellucid.completions import AnswerError, ChatClient, Piece, api_root
from pellucid.errors import CommandError
from tests.pellucid.openai_server import Script, content, event, running

QUESTION = [{"role": "user", "content": "hi"}]


def ask(script: Script, **parameters: object) -> list[Piece]:
    with running(script), ChatClient(script.url) as client:
        return list(client.answer("m", QUESTION, **parameters))


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.content for piece in pieces)


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://h:1", "http://h:1/v1/"),
        ("http://h:1/", "http://h:1/v1/"),
        ("http://h:1/v1", "http://h:1/v1/"),
        ("http://h:1/v1/", "http://h:1/v1/"),
        ("https://h/api/openai", "https://h/api/openai/"),
        ("h:8000", "http://h:8000/v1/"),
    ],
)
def test_the_version_may_be_left_out_of_a_url(url: str, root: str) -> None:
    assert api_root(url) == root


def test_an_answer_is_its_pieces_in_order() -> None:
    script = Script(answers=[content("Hel", "lo ", "\u00e9\U0001f600")])
    pieces = ask(script)
    assert text_of(pieces) == "Hello \u00e9\U0001f600"
    assert pieces[-1].finish_reason == "stop"
    assert script.paths == ["/v1/chat/completions"]


def test_pieces_do_not_depend_on_how_the_bytes_are_cut() -> None:
    whole = "".join(content("a", "b", "c"))
    cut = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    assert text_of(ask(Script(answers=[cut]))) == "abc"


def test_only_parameters_that_were_given_are_sent() -> None:
    script = Script(answers=[content("x")])
    ask(script, temperature=0.0, max_tokens=None, seed=7)
    assert script.bodies == [{"model": "m", "messages": QUESTION, "stream": True, "temperature": 0.0, "seed": 7}]


def test_the_api_key_is_sent_only_in_the_header() -> None:
    script = Script(answers=[content("x")])
    with running(script), ChatClient(script.url, SecretStr("hush")) as client:
        list(client.answer("m", QUESTION))
    assert script.headers[0]["authorization"] == "Bearer hush"
    assert "hush" not in json.dumps(script.bodies)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_both_reasoning_fields_are_read(name: str) -> None:
    script = Script(answers=[[event(delta={name: "hm"}, finish_reason=None), *content("so")]])
    assert ask(script)[:2] == [Piece(reasoning="hm"), Piece(content="so")]


def test_reasoning_in_both_fields_is_read_once() -> None:
    script = Script(answers=[[event(delta={"reasoning_content": "hm", "reasoning": "hm"}), "data: [DONE]\n\n"]])
    assert ask(script) == [Piece(reasoning="hm")]


def test_comments_and_events_without_choices_are_skipped() -> None:
    usage = 'data: {"choices": [], "usage": {"total_tokens": 3}}\n\n'
    script = Script(answers=[[": ping\n\n", *content("x")[:-1], usage, "data: [DONE]\n\n"]])
    assert text_of(ask(script)) == "x"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "no such model", "code": "model_not_found"}}', "no such model (HTTP 400)"),
        ('{"error": "plain"}', "plain (HTTP 400)"),
        ("<html>Bad Gateway</html>", "<html>Bad Gateway</html> (HTTP 400)"),
        ("", "empty response (HTTP 400)"),
        ("[]", "[] (HTTP 400)"),
    ],
)
def test_error_bodies_become_readable_messages(body: str, message: str) -> None:
    with pytest.raises(AnswerError) as caught:
        ask(Script(status=400, answers=[[body]]))
    assert str(caught.value) == message


def test_an_error_in_the_stream_comes_after_the_pieces_before_it() -> None:
    script = Script(answers=[[*content("half")[:1], 'data: {"error": {"message": "engine lost"}}\n\n']])
    said: list[Piece] = []
    with running(script), ChatClient(script.url) as client, pytest.raises(AnswerError, match="engine lost"):
        said.extend(client.answer("m", QUESTION))
    with running(script), ChatClient(script.url) as client:
        assert next(client.answer("m", QUESTION)) == Piece(content="half")


@pytest.mark.parametrize("tail", [[], content("half")[1:-1]])
def test_an_answer_without_done_is_incomplete(tail: list[str]) -> None:
    with pytest.raises(AnswerError, match="incomplete"):
        ask(Script(answers=[[*content("half")[:1], *tail]]))


@pytest.mark.parametrize("data", ["no json", "[1]", "null", '"text"'])
def test_an_event_that_is_not_an_object_is_an_error(data: str) -> None:
    with pytest.raises(AnswerError, match="not a JSON object"):
        ask(Script(answers=[[f"data: {data}\n\n"]]))


def test_a_refused_connection_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with ChatClient(url) as client, pytest.raises(AnswerError, match=f"cannot connect to {url}"):
        client.model_names()


def test_a_server_that_does_not_speak_http_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(reply_garbage, server)
        with (
            ChatClient(f"http://127.0.0.1:{server.getsockname()[1]}") as client,
            pytest.raises(AnswerError, match="connection error"),
        ):
            client.model_names()


def reply_garbage(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        peer.recv(65536)
        peer.sendall(b"\x00\x01garbage\r\n\r\n")


@pytest.mark.parametrize("url", ["http://h:port", "http://\x00"])
def test_an_invalid_url_is_a_clear_error(url: str) -> None:
    with pytest.raises(CommandError, match="is not a valid URL"):
        ChatClient(url)


def test_models_are_named() -> None:
    with running(Script()) as script, ChatClient(script.url) as client:
        assert client.model_names() == ["first", "second"]


@pytest.mark.parametrize("models", ["no json", "[]", '{"data": 3}', '{"data": [{}]}', "{}"])
def test_an_invalid_list_of_models_is_an_error(models: str) -> None:
    with (
        running(Script(models=models)) as script,
        ChatClient(script.url) as client,
        pytest.raises(AnswerError, match="list of models"),
    ):
        client.model_names()


def test_closing_an_answer_disconnects() -> None:
    with running(Script(answers=[content("half")[:1]], hold=True)) as script, ChatClient(script.url) as client:
        answer = client.answer("m", QUESTION)
        assert next(answer).content == "half"
        answer.close()
        assert script.left.wait(30)
