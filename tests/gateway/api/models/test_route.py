from __future__ import annotations

import httpx2
import pytest

from tests.gateway.running import Stack, scripted_stack


def get(stack: Stack, path: str) -> httpx2.Response:
    return httpx2.get(f"{stack.url}{path}", timeout=20)


def test_every_name_is_listed(shared: Stack) -> None:
    answer = get(shared, "/v1/models").json()
    assert answer["object"] == "list"
    assert [model["id"] for model in answer["data"]] == ["simulated", "sim", "org/sim"]
    for model in answer["data"]:
        assert model["object"] == "model"
        assert model["owned_by"] == "pellucid"
        assert model["max_model_len"] == 8192
        assert model["root"] == "simulated"
        assert isinstance(model["created"], int)


@pytest.mark.parametrize("name", ["simulated", "org/sim", "org%2Fsim"])
def test_one_model(shared: Stack, name: str) -> None:
    model = get(shared, f"/v1/models/{name}").json()
    assert model in get(shared, "/v1/models").json()["data"]
    assert model["id"] == name.replace("%2F", "/")


@pytest.mark.parametrize("name", ["no/such", "Simulated", "simulated/", "%00", "..%2Fsimulated"])
def test_unknown_model(shared: Stack, name: str) -> None:
    answer = get(shared, f"/v1/models/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


async def test_max_model_len_is_null_without_an_engine() -> None:
    async with scripted_stack() as stack:
        await stack.peer("engine").stop()
        async with stack.http() as client:
            for _ in range(1000):
                (model,) = (await client.get("/v1/models")).json()["data"]
                if model["max_model_len"] is None:
                    break
            assert model["max_model_len"] is None
