from __future__ import annotations

import time

import pytest
from tokenizers import AddedToken, Tokenizer

from modelfiles.tokenizer import LoadedTokenizer
from svclib.config import SettingsError
from svclib.errors import InvalidRequest, Unsupported
from tests.tokenizer_svc import templates, tiny
from tests.tokenizer_svc.local import compiled
from tokenizer_svc.conversation import Conversation, Message, Tool
from tokenizer_svc.formats import THINK_TAGS
from tokenizer_svc.prompt_tokenizer import PromptTokenizer
from tokenizer_svc.reasoning import ReasoningState

USER = Conversation((Message("user", "hi"),))


def loaded(*, eos: tuple[int, ...] = (), **chat_templates: str) -> LoadedTokenizer:
    return LoadedTokenizer(
        tokenizer=tiny.byte_level(),
        special_tokens={"bos_token": "<s>", "eos_token": "</s>"},
        chat_templates=chat_templates,
        eos_token_ids=eos,
    )


def token_id(spelling: str) -> int:
    found = tiny.byte_level().token_to_id(spelling)
    assert found is not None
    return found


def test_a_prompt() -> None:
    before = time.time()
    prompt = PromptTokenizer(loaded(default=templates.THINKS), compiled).render(USER)
    assert prompt.text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.token_ids == tiny.byte_level().encode(prompt.text).ids
    assert prompt.reasoning_state is ReasoningState.UNDECIDED
    assert before <= prompt.started_at <= prompt.rendered_at <= prompt.tokenized_at <= time.time()


def test_a_model_without_a_chat_template() -> None:
    tokenizer = PromptTokenizer(loaded(), compiled)
    with pytest.raises(Unsupported) as caught:
        tokenizer.render(USER)
    assert caught.value.param == "messages"
    assert tokenizer.template_version == tokenizer.tool_format == tokenizer.reasoning_format == ""
    assert tokenizer.capabilities is None
    assert tokenizer.tokenize("fox", "x", add_special_tokens=False, parse_special_tokens=False)


def test_a_separate_template_for_tools() -> None:
    tokenizer = PromptTokenizer(loaded(default=templates.CHATML, tool_use=templates.WITH_TOOLS), compiled)
    with_tools = tokenizer.render(Conversation(USER.messages, (Tool("f"),)))
    without = tokenizer.render(USER)
    assert '"name": "f"' in with_tools.text
    assert without.template_version == tokenizer.template_version != with_tools.template_version
    assert tokenizer.capabilities is not None
    assert tokenizer.capabilities.tools


def test_templates_without_a_default() -> None:
    with pytest.raises(SettingsError, match="no chat template 'default' among rag"):
        PromptTokenizer(loaded(rag=templates.CHATML), compiled)


@pytest.mark.parametrize("source", ["{% if %}", "{{ ''.__class__.__mro__ }}", "nothing"])
def test_an_unusable_template(source: str) -> None:
    with pytest.raises(SettingsError, match="the chat template cannot be used"):
        PromptTokenizer(loaded(default=source), compiled)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (templates.CHATML, "<|im_end|>"),
        (templates.WITH_TOOLS, "<|im_end|>"),
        (templates.STRICT, "</s>"),
        (templates.CHATML.replace("'<|im_end|>\n'", "' \n<|im_end|></s>'"), "<|im_end|>"),
    ],
)
def test_tokens_that_end_a_turn_are_found_in_the_template(source: str, expected: str) -> None:
    tokenizer = PromptTokenizer(loaded(default=source, eos=(5,)), compiled)
    assert tokenizer.eos_token_ids == (5, token_id(expected))


def test_a_token_that_does_not_directly_follow_an_answer_is_not_a_turn_end() -> None:
    source = templates.CHATML.replace("'<|im_end|>\n'", "'\n---<|im_end|>'")
    assert PromptTokenizer(loaded(default=source, eos=(5,)), compiled).eos_token_ids == (5,)


def test_the_template_adds_to_the_tokens_that_the_files_name() -> None:
    tokenizer = PromptTokenizer(loaded(default=templates.CHATML, eos=(5, 5, 0)), compiled)
    assert tokenizer.eos_token_ids == (5, 0, token_id("<|im_end|>"))


def with_special(*spellings: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(tiny.byte_level().to_str())
    tokenizer.add_special_tokens([AddedToken(spelling, special=True) for spelling in spellings])
    return tokenizer


@pytest.mark.parametrize(
    ("special", "ends"), [(("<|end|>",), ("<|end|>",)), (("<|end|>", "<|return|>", "<|call|>"), ())]
)
def test_harmonys_message_end_is_not_a_turn_end(special: tuple[str, ...], ends: tuple[str, ...]) -> None:
    tokenizer = with_special(*special)
    template = templates.CHATML.replace("<|im_end|>", "<|end|>")
    found = PromptTokenizer(LoadedTokenizer(tokenizer, {}, {"default": template}, (5,)), compiled).eos_token_ids
    assert found == (5, *(tokenizer.token_to_id(end) for end in ends))


def test_the_closing_tag_of_a_call_is_not_a_turn_end() -> None:
    tokenizer = with_special("<|tool_end|>")
    template = templates.WITH_TOOLS.replace("</tool_call>", "<|tool_end|>").replace("<|im_end|>", "")
    found = PromptTokenizer(LoadedTokenizer(tokenizer, {}, {"default": template}, (5,)), compiled).eos_token_ids
    assert tokenizer.token_to_id("<|tool_end|>") not in found


def test_bytes() -> None:
    tokenizer = PromptTokenizer(loaded(), compiled)
    ids = tokenizer.tokenize(b"<s>\xf0", "x", add_special_tokens=False, parse_special_tokens=True)
    assert ids[0] == token_id("<s>")
    assert len(ids) == 2
    with pytest.raises(InvalidRequest) as caught:
        tokenizer.tokenize(b"a", "x", add_special_tokens=True, parse_special_tokens=False)
    assert caught.value.param == "add_special_tokens"
    with pytest.raises(InvalidRequest) as caught:
        tokenizer.detokenize([tokenizer.vocab_size], skip_special_tokens=False)
    assert caught.value.param == "token_ids[0]"


@pytest.mark.parametrize("template", [templates.THINKS, templates.CHATML])
def test_reasoning_tags_are_tokens_if_the_vocabulary_has_them(template: str) -> None:
    tokenizer = PromptTokenizer(loaded(default=template), compiled)
    for name, spellings in THINK_TAGS.items():
        tags = tokenizer.reasoning_tags[name]
        for spelling, ids in zip(spellings, (tags.start, tags.end), strict=True):
            assert tokenizer.detokenize(list(ids), skip_special_tokens=False) == spelling
    known = tiny.byte_level().token_to_id("</think>")
    assert known is not None
    assert tokenizer.reasoning_tags["think"].end == (known,)
