"""Whole stacks with model files whose details loaders easily miss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from tests.detokenizer_svc.test_text_steps import DECODERS, description
from tests.engine_svc import tiny as tiny_models
from tests.modelfiles.given import control
from tests.modelfiles.test_gguf_tokenizer import deepseek, sentencepiece
from tests.stack import Stack, running_stack
from tests.tokenizer_svc import templates, tiny
from tests.tokenizer_svc.test_gguf_chats import DEEPSEEK_TEMPLATE, PHI3_TEMPLATE

HI: Any = [{"role": "user", "content": "hi"}]


def ends() -> dict[str, int]:
    """Three end-of-turn tokens: from generation_config.json, config.json and the template."""
    found = tiny.byte_level().token_to_id("<|im_end|>")
    assert found is not None
    return {"generation_config.json": 0, "config.json": 5, "template": found}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("ends")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tiny.byte_level(), bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = templates.CHATML
    tokenizer.save_pretrained(folder)
    tiny_models.save(tiny_models.random_model(tiny_models.llama(vocab_size=512, eos_token_id=5)), folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends()["generation_config.json"]}))
    with running_stack("--model", str(folder), ENGINE_KV_CACHE_MEMORY_MB="16") as stack:
        yield stack


@pytest.mark.parametrize("named_by", ["generation_config.json", "config.json", "template"])
def test_every_end_of_turn_token_stops_generation(stack: Stack, named_by: str) -> None:
    bias = {str(ends()[named_by]): 100}
    model = stack.client().models.list().data[0].id
    answer = stack.client().chat.completions.create(model=model, messages=HI, max_tokens=5, logit_bias=bias)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 1


def make_deepseek(folder: Path) -> tuple[Path, int]:
    return deepseek(folder / "x.gguf", add_chat_template=DEEPSEEK_TEMPLATE), 5


def make_phi3(folder: Path) -> tuple[Path, int]:
    more = control("<|user|>", "<|assistant|>", "<|end|>")
    sentencepiece(folder / "x.gguf", *more, architecture="phi3", add_chat_template=PHI3_TEMPLATE)
    return folder / "x.gguf", 4


def make_k10(folder: Path) -> tuple[Path, int]:
    pieces = [["<unk>", 0.0], ["x", -1.0], ["\u2581Hello", -1.0], ["\n", -1.0], ["\u2581world", -1.0]]
    whole = description(DECODERS["K10.1"]) | {
        "added_tokens": [],
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces},
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    template = "{% for m in messages %}x{{ m.content }}{% endfor %}"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder, 2


@pytest.mark.parametrize(
    ("make", "steps", "text"),
    [
        (make_deepseek, ["hi", " x"], "hi x"),
        (make_phi3, [" hi", " x"], "hi x"),
        (make_k10, [" Hello", "\n", " world"], "Hello\nworld"),
    ],
)
def test_a_chat_with_another_tokenizer(make: Any, steps: list[str], text: str, tmp_path: Path) -> None:
    source, num_tokens = make(tmp_path)
    messages: Any = [{"role": "user", "content": "x" if make is make_k10 else "hi"}]
    script = {"simulate": {"steps": steps, "repeat": 1, "finish": "stop"}}
    with running_stack("--model", "simulated", "--tokenizer", str(source)) as stack:
        answer = stack.client().chat.completions.create(model="simulated", messages=messages, extra_body=script)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == num_tokens
        assert answer.choices[0].message.content == text
