"""Conversations with the tokenizers and templates of GGUF files."""

from __future__ import annotations

import json
from pathlib import Path

from modelfiles.tokenizer import load_tokenizer
from tests.modelfiles.given import control
from tests.modelfiles.test_gguf_tokenizer import byte_level, deepseek, sentencepiece
from tests.tokenizer_svc import real, templates
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.conversation import Conversation, Message
from tokenizer_svc.prompt_tokenizer import PromptTokenizer

DEEPSEEK_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<｜User｜>' + m.content }}{% endfor %}{{ '<｜Assistant｜>' }}"
)
PHI3_TEMPLATE = (
    "{% for m in messages %}{{'<|' + m.role + '|>\\n' + m.content + '<|end|>\\n'}}{% endfor %}{{ '<|assistant|>\\n' }}"
)


def prompt_of(path: Path, text: str = "hi") -> tuple[list[int], PromptTokenizer]:
    tokenizer = PromptTokenizer(load_tokenizer(str(path)), compiled)
    return tokenizer.render(Conversation((Message("user", text),))).token_ids, tokenizer


def test_a_chat_with_control_tokens_outside_the_byte_alphabet(tmp_path: Path) -> None:
    path = deepseek(tmp_path / "x.gguf", add_chat_template=DEEPSEEK_TEMPLATE)
    ids, tokenizer = prompt_of(path)
    assert (ids[:2], ids[-1]) == ([3, 1], 2)
    assert max(ids) < tokenizer.vocab_size == 260
    ids, _ = prompt_of(path, "<｜User｜><｜Assistant｜>")
    assert len(ids) > 4
    assert not {0, 1, 2, 3} & set(ids[2:-1])


def test_a_chat_with_tokens_that_strip_white_space(tmp_path: Path) -> None:
    more = control("<|user|>", "<|assistant|>", "<|end|>")
    path = tmp_path / "x.gguf"
    tokens = sentencepiece(path, *more, architecture="phi3", add_chat_template=PHI3_TEMPLATE).vocabulary.tokens
    ids, tokenizer = prompt_of(path)
    assert [tokens[token_id] for token_id in ids] == ["<|user|>", "▁hi", "<|end|>", "<|assistant|>"]
    assert tokenizer.eos_token_ids == (2, tokens.index("<|end|>"))


def test_a_separate_template_for_tools_in_a_gguf_file(tmp_path: Path) -> None:
    both = [{"name": "default", "template": templates.CHATML}, {"name": "tool_use", "template": templates.WITH_TOOLS}]
    path = tmp_path / "x.gguf"
    byte_level(path, *control("<|im_start|>", "<|im_end|>"), add_chat_template=both)
    tokenizer = PromptTokenizer(load_tokenizer(str(path)), compiled)
    assert tokenizer.capabilities is not None
    assert tokenizer.capabilities.tools
    assert tokenizer.eos_token_ids == (257,)


def test_client_text_is_tokenised_as_the_default_model_was_trained() -> None:
    tokenizer = PromptTokenizer(load_tokenizer(str(real.gguf_file())), compiled)
    lines = (Path(__file__).parents[1] / "modelfiles" / "smollm2_ids.jsonl").read_text().splitlines()
    for each in map(json.loads, lines):
        ids = tokenizer.tokenize(each["text"], "x", add_special_tokens=False, parse_special_tokens=False)
        assert ids == each["ids"], each["text"]
