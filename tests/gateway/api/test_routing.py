"""Routes: 404 and 405 errors, and HEAD wherever GET is allowed."""

from __future__ import annotations

import httpx2
import pytest

from tests.gateway.running import Stack

CHAT = "/v1/chat/completions"


def ask(stack: Stack, method: str, path: str) -> httpx2.Response:
    return httpx2.request(method, f"{stack.url}{path}", timeout=20)


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/version", "/metrics", "/v1/models", "/v1/models/", "/v1/models/simulated",
             "/v1/models/org/sim", "/v1/models/none", "/nowhere"],
)  # fmt: skip
def test_head_matches_get(shared: Stack, path: str) -> None:
    got, head = ask(shared, "GET", path), ask(shared, "HEAD", path)
    assert head.status_code == got.status_code
    assert head.content == b""
    ignored = {"date", "x-request-id"} | ({"content-length"} if path in {"/metrics", "/nowhere"} else set())
    assert {name: value for name, value in head.headers.items() if name not in ignored} == {
        name: value for name, value in got.headers.items() if name not in ignored
    }
    assert int(head.headers["content-length"]) > 0


def test_head_is_allowed_for_every_get_route(shared: Stack) -> None:
    with httpx2.Client(base_url=shared.url) as client:
        listed = client.get("/nowhere").json()["error"]["message"].partition("routes: ")[2].split(", ")
        got = [route.removeprefix("GET ") for route in listed if route.startswith("GET ")]
        assert len(got) >= 6
        for path in got:
            assert client.head(path.replace("{name}", "simulated")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/x"), ("POST", "/chat/completions"), ("DELETE", "/"), ("POST", "/v1/v1/chat/completions"),
     ("POST", f"{CHAT}/"), ("HEAD", "/none")],
)  # fmt: skip
def test_404_names_the_path_and_the_routes(shared: Stack, method: str, path: str) -> None:
    answer = ask(shared, method, path)
    assert answer.status_code == 404
    if method == "HEAD":
        return
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("not_found", "invalid_request_error")
    assert error["message"].startswith(f"no route for {method} {path}; routes: ")
    for route in (
        f"POST {CHAT}",
        "GET /v1/models",
        "GET /v1/models/{name}",
        "GET /health",
        "GET /ready",
        "GET /metrics",
    ):
        assert route in error["message"]
    assert not error["message"].endswith("…")


@pytest.mark.parametrize("path", ["/" + "x" * 5000, "/" + "é" * 3000, "/%00%0a" * 200])
def test_long_path_is_shortened(shared: Stack, path: str) -> None:
    answer = ask(shared, "GET", path)
    assert answer.status_code == 404
    assert f"POST {CHAT}" in answer.json()["error"]["message"]
    assert len(answer.content) < 4096


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", CHAT, {"POST"}), ("HEAD", CHAT, {"POST"}), ("DELETE", "/v1/models", {"GET", "HEAD"}),
     ("PUT", "/health", {"GET", "HEAD"}), ("PATCH", "/v1/models/simulated", {"GET", "HEAD"}),
     ("OPTIONS", CHAT, {"POST"})],
)  # fmt: skip
def test_405_names_the_allowed_methods(shared: Stack, method: str, path: str, allowed: set[str]) -> None:
    answer = ask(shared, method, path)
    assert answer.status_code == 405
    assert {each.strip() for each in answer.headers["allow"].split(",")} == allowed
    if method != "HEAD":
        message = answer.json()["error"]["message"]
        assert message.startswith(f"{method} {path} is not allowed; allowed: ")
        assert all(each in message for each in allowed)


def test_models_with_a_trailing_slash(shared: Stack) -> None:
    assert ask(shared, "GET", "/v1/models/").json() == ask(shared, "GET", "/v1/models").json()
