from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors

from tests.tokenizer_svc import tiny
from tokenizer_svc.plain_text import PlainText

CONTROLS = (*tiny.CONTROLS, *tiny.TAGS)
TEXTS = st.lists(
    st.one_of(st.sampled_from([*CONTROLS, "fox", " ", "\n\n", "ü", "你", "<b>"]), st.text(max_size=3)), max_size=12
).map("".join)


def control_ids(tokenizer: Tokenizer) -> dict[str, int]:
    ids = {text: tokenizer.token_to_id(text) for text in CONTROLS}
    return {text: token_id for text, token_id in ids.items() if token_id is not None}


def plain(name: str, *, at_start: bool = True) -> PlainText:
    tokenizer = tiny.ALL[name]()
    return PlainText(tokenizer, control_ids(tokenizer), at_start=at_start)


@pytest.mark.parametrize("name", tiny.ALL)
@given(text=TEXTS)
def test_text_never_becomes_a_control_token(name: str, text: str) -> None:
    assert not {*control_ids(tiny.ALL[name]()).values()} & {*plain(name).encode(text)}


@given(text=TEXTS)
def test_all_text_is_kept(text: str) -> None:
    tokenizer = tiny.ALL["byte_level"]()
    decoded = tokenizer.decode(plain("byte_level").encode(text), skip_special_tokens=False)
    assert decoded == tokenizer.normalizer.normalize_str(text)


@pytest.mark.parametrize("name", tiny.ALL)
@given(text=st.text(max_size=20).filter(lambda text: "<" not in text and "＜" not in text))
def test_text_without_spellings_is_encoded_normally(name: str, text: str) -> None:
    assert plain(name).encode(text) == tiny.ALL[name]().encode(text, add_special_tokens=False).ids


def test_added_tokens_that_are_text_stay_and_keep_their_ids() -> None:
    tokenizer = tiny.ALL["gemma"]()
    encoded = plain("gemma").encode("<b>x</b>\n\n\n<s>")
    assert encoded[:1] == [tokenizer.token_to_id("<b>")]
    assert tokenizer.token_to_id("\n\n\n") in encoded
    assert tokenizer.token_to_id("<s>") not in encoded


def test_the_space_before_the_first_word_is_added_only_at_the_start() -> None:
    tokenizer = tiny.ALL["sentencepiece"]()
    assert tokenizer.decode(plain("sentencepiece").encode("fox")) == " fox"
    assert tokenizer.decode(plain("sentencepiece", at_start=False).encode("fox")) == "fox"


@pytest.mark.parametrize(("name", "text"), [("greedy", "a<s>b"), ("greedy", "<s>")])
def test_special_tokens_are_added_around_a_text_that_spells_one(name: str, text: str) -> None:
    tokenizer = Tokenizer.from_str(tiny.ALL[name]().to_str())
    ids = control_ids(tokenizer)
    around = [("<s>", ids["<s>"]), ("</s>", ids["</s>"])]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=around)
    first, *inner, last = PlainText(tokenizer, ids, at_start=True).encode(text, add_special_tokens=True)
    assert (first, last) == (ids["<s>"], ids["</s>"])
    assert tokenizer.decode(inner, skip_special_tokens=False) == text
    assert not {*ids.values()} & {*inner}
