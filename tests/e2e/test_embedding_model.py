"""A whole stack with an embedding model: it starts, reports its task, embeds, and refuses chat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import openai
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from protos.v1 import engine_pb2, engine_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc
from tests.stack import Stack, running_stack

TEXT = "The capital of France is Paris."


@pytest.fixture(scope="module")
def stack(minilm: Path) -> Iterator[Stack]:
    with running_stack("--model", str(minilm), "--served-model-name", "minilm") as stack:
        yield stack


@torch.inference_mode()
def expected(folder: Path) -> np.ndarray:
    inputs = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")
    mean = AutoModel.from_pretrained(folder).eval()(**inputs).last_hidden_state[0].mean(0)
    return np.asarray(mean / mean.norm())


def test_a_text_is_embedded(stack: Stack, minilm: Path) -> None:
    with (
        grpc.insecure_channel(f"127.0.0.1:{stack.flag('tokenizer_svc', 'port')}") as tokenizer,
        grpc.insecure_channel(f"127.0.0.1:{stack.flag('engine_svc', 'port')}") as engine,
    ):
        tokens = tokenizer_pb2_grpc.TokenizerStub(tokenizer).Tokenize(
            tokenizer_pb2.TokenizeRequest(inputs=[tokenizer_pb2.TokenizeInput(text=TEXT)], add_special_tokens=True)
        )
        inputs = [engine_pb2.TokenizedInput(input_ids=output.token_ids) for output in tokens.outputs]
        stub = engine_pb2_grpc.EngineStub(engine)
        found = stub.Embed(engine_pb2.EmbedRequest(request_id="r", inputs=inputs))
        info = stub.GetModelInfo(engine_pb2.ModelInfoRequest())

    np.testing.assert_allclose(found.embeddings[0].values, expected(minilm), atol=1e-5)
    assert list(info.tasks) == ["embed"]
    assert "loaded embedding model" in stack.log.read_text()


@pytest.mark.parametrize("stream", [False, True])
def test_chat_is_refused(stack: Stack, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match="embedding model") as raised:
        stack.client().chat.completions.create(
            model="minilm", messages=[{"role": "user", "content": "hi"}], stream=stream
        )
    assert raised.value.param == "model"
