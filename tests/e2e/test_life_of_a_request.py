"""The values in docs/life-of-a-request.md are those of the services."""

from __future__ import annotations

import re
from pathlib import Path

import grpc

from protos.v1 import engine_pb2, engine_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc
from tests.stack import Stack

PAGE = (Path(__file__).parents[2] / "docs/life-of-a-request.md").read_text()
QUESTION = "What is the capital of France?"
BLOCK_SIZE = 16


def section(number: int) -> str:
    return PAGE.partition(f"\n## {number}. ")[2].partition("\n## ")[0]


def blocks(text: str) -> list[str]:
    """The indented blocks, without indentation."""
    found = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def ids(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def render(stack: Stack) -> tokenizer_pb2.RenderResponse:
    message = tokenizer_pb2.ChatMessage(role="user", text=QUESTION)
    with grpc.insecure_channel(f"127.0.0.1:{stack.flag('tokenizer_svc', 'port')}") as channel:
        answer: tokenizer_pb2.RenderResponse = tokenizer_pb2_grpc.TokenizerStub(channel).Render(
            tokenizer_pb2.RenderRequest(messages=[message])
        )
    return answer


def test_the_prompt(real: Stack) -> None:
    prompt = render(real)
    assert prompt.text == blocks(section(3))[0]
    assert list(prompt.token_ids) == ids(blocks(section(4))[0])
    assert f"{len(prompt.token_ids)} tokens" in section(4)
    assert f"`{prompt.template_version[:12]}..." in section(4)


def test_the_answer(real: Stack) -> None:
    with real.client() as client:
        chunks = list(
            client.chat.completions.create(
                model="smollm2-135m-instruct",
                messages=[{"role": "user", "content": QUESTION}],
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert "".join(pieces) == "".join(re.findall(r'"([^"]*)"', blocks(section(10))[0]))
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == len(ids(blocks(section(8))[0]))
    assert f"completion_tokens: {usage.completion_tokens}" in section(11)


def test_the_same_prompt_again_hits_the_prefix_cache(real: Stack) -> None:
    with real.client() as client:
        for _ in range(2):
            answer = client.chat.completions.create(
                model="smollm2-135m-instruct",
                messages=[{"role": "user", "content": QUESTION}],
                temperature=0,
                max_tokens=1,
            )
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    cached = answer.usage.prompt_tokens_details.cached_tokens
    assert cached == answer.usage.prompt_tokens // BLOCK_SIZE * BLOCK_SIZE
    assert f"`cached_tokens` is {cached}" in section(6)


def test_the_shapes(real: Stack) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{real.flag('engine_svc', 'port')}") as channel:
        info: engine_pb2.ModelInfo = engine_pb2_grpc.EngineStub(channel).GetModelInfo(engine_pb2.ModelInfoRequest())
    assert info.block_size == BLOCK_SIZE
    assert f"`[1, {info.vocab_size}]`" in section(7)
