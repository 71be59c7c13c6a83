from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from modelfiles.token_spelling import byte_alphabet, byte_fallback_tokens
from svclib.errors import ContextLengthExceeded
from tests.tokenizer_svc import real, tiny
from tokenizer_svc.prompt_length import PromptLength, WidestToken, widest_token

LETTERS = {letter: token_id for token_id, letter in enumerate(byte_alphabet())}
KNOWN = [name for name in tiny.ALL if name not in ("greedy", "normalizing")]
SHRINKING = ["e\u0301", "\u1fbe\u0308\u0301", "\U0001d6bc"]
PIECES = st.sampled_from(["<|im_start|>", "<s>", "fox", "The quick", " ", " " * 50, "\n\n\n", "你好", *SHRINKING])
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=12).map("".join)


def letters(*, without: bytes = b"", merges: tuple[tuple[str, str], ...] = ()) -> Tokenizer:
    """A token for each byte, and some tokens of two bytes."""
    vocab = {letter: i for letter, i in LETTERS.items() if byte_alphabet()[letter] not in without}
    vocab |= {a + b: len(LETTERS) + i for i, (a, b) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer


def num_tokens(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def widest(tokenizer: Tokenizer) -> WidestToken:
    found = widest_token(tokenizer)
    assert found is not None
    return found


@pytest.mark.parametrize("name", KNOWN)
@given(text=TEXTS)
def test_the_bound_is_never_above_the_number_of_tokens(name: str, text: str) -> None:
    tokenizer = tiny.ALL[name]()
    assert widest(tokenizer).fewest_tokens(text) <= num_tokens(tokenizer, text)


@pytest.mark.parametrize("name", real.NAMES)
def test_bounds_of_real_vocabularies(name: str) -> None:
    tokenizer = real.loaded(name).tokenizer
    found = widest(tokenizer)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    longest = sorted(vocabulary, key=len)[-50:]
    for text in [tokenizer.decode([vocabulary[token]], skip_special_tokens=False) for token in longest]:
        assert found.fewest_tokens(text * 50) <= num_tokens(tokenizer, text * 50)


@pytest.mark.parametrize("name", real.NAMES)
def test_four_megabytes_are_refused_for_a_context_of_8192_tokens(name: str) -> None:
    if name == "qwen3":
        pytest.skip("its normal form may shrink a text to a quarter: only beyond 4,194,304 bytes is it sure")
    with pytest.raises(ContextLengthExceeded):
        PromptLength(real.loaded(name).tokenizer).check_text("Could you? " * 400_000, "\x01", 8192)


@pytest.mark.parametrize(("text", "fits"), [("ab" * 10, True), ("ab" * 10 + "\x01", True), ("ab" * 10 + "c", False)])
def test_at_the_limit_and_one_above(text: str, fits: bool) -> None:
    length = PromptLength(letters(merges=(("a", "b"), ("ab", "ab"))))
    if fits:
        length.check_text(text, "\x01", 5)
        return
    with pytest.raises(ContextLengthExceeded) as caught:
        length.check_text(text, "\x01", 5)
    assert caught.value.param == "messages"
    assert caught.value.message == (
        "the messages are at least 6 tokens long and the model's context has 6, "
        "of which at least one must be left for the answer"
    )


def test_the_encoded_length_at_the_limit_and_one_above() -> None:
    length = PromptLength(letters())
    length.check(5, 5)
    length.check(10**9, None)
    with pytest.raises(ContextLengthExceeded, match="the messages are 6 tokens long and the model's context has 6,"):
        length.check(6, 5)


def test_without_a_limit_any_length_is_accepted() -> None:
    PromptLength(letters()).check_text("a" * 1_000_000, "\x01", None)


def test_bytes_missing_from_the_vocabulary_are_not_counted() -> None:
    tokenizer = letters(without=b"\x04\xf1\xc0\xff")
    text = "\x04" * 1000 + "\U00040000" + "a"
    assert num_tokens(tokenizer, text) == 4
    assert sorted(widest(tokenizer).lost) == [0x04, 0xF1]
    assert widest(tokenizer).fewest_tokens(text) == 1
    tokenizer.normalizer = normalizers.NFC()
    assert widest_token(tokenizer) is None


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
@pytest.mark.parametrize("space", [" ", "\n", "\t", "\u3000", "\u2028", "\x85"])
def test_white_space_stripped_by_a_token_is_not_counted(side: str, space: str) -> None:
    tokenizer = letters()
    tokenizer.add_special_tokens([AddedToken("<s>", **{side: True})])
    text = space * 1000 + "<s>" + space * 1000
    assert num_tokens(tokenizer, text) == 1 + 1000 * len(space.encode())
    assert widest(tokenizer).fewest_tokens(text) == 1
    assert widest(tokenizer).fewest_tokens("a" * 8) == 2


@pytest.mark.parametrize(("form", "decomposed"), [("NFC", "NFD"), ("NFKC", "NFKD")])
def test_unicode_normalization_shrinks_a_text_to_a_quarter_at_most(
    form: Literal["NFC", "NFKC"], decomposed: Literal["NFD", "NFKD"]
) -> None:
    """The bytes per character of every decomposition stay within the bound."""
    characters = [chr(i) for i in range(0x33400) if not 0xD800 <= i < 0xE000]  # No character beyond decomposes.
    apart = {each: unicodedata.normalize(decomposed, each) for each in characters}
    share: dict[str, float] = {}
    for character, parts in apart.items():
        for part in parts:
            share[part] = max(share.get(part, 0), len(character.encode()) / len(parts))
    composed = (each for each in apart if unicodedata.normalize(form, each) == each)
    assert max(sum(share[part] for part in apart[each]) / len(each.encode()) for each in composed) <= 4


def shrunk(make: Callable[[], normalizers.Normalizer]) -> WidestToken | None:
    tokenizer = letters()
    tokenizer.normalizer = make()
    return widest_token(tokenizer)


@pytest.mark.parametrize(
    ("make", "num_bytes"),
    [
        (lambda: normalizers.NFC(), 16),
        (lambda: normalizers.Sequence([normalizers.NFKC(), normalizers.Prepend("x")]), 16),
        (lambda: normalizers.Replace(" ", "▁"), 4),
        (lambda: normalizers.Replace("abc", "d"), 12),
        (lambda: normalizers.Replace("abc", "de"), 8),
        (lambda: normalizers.Sequence([]), 4),
    ],
)
def test_normalizers_that_shrink_a_text_by_a_known_factor(
    make: Callable[[], normalizers.Normalizer], num_bytes: int
) -> None:
    assert shrunk(make) == WidestToken(num_bytes, b"", False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: normalizers.Strip(),
        lambda: normalizers.StripAccents(),
        lambda: normalizers.Lowercase(),
        lambda: normalizers.Replace(" ", ""),
        lambda: normalizers.Replace(Regex(" +"), " "),
        lambda: normalizers.Sequence([normalizers.NFC(), normalizers.Nmt()]),
        lambda: normalizers.BertNormalizer(),
    ],
)
def test_normalizers_that_may_shrink_it_to_nothing(make: Callable[[], normalizers.Normalizer]) -> None:
    assert shrunk(make) is None


@pytest.mark.parametrize(
    ("pre_tokenizer", "known"),
    [
        (pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]), True),
        (pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "isolated"), pre_tokenizers.ByteLevel()]), True),
        (pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()]), False),
        (pre_tokenizers.Sequence([pre_tokenizers.Punctuation("removed"), pre_tokenizers.ByteLevel()]), False),
        (pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel()]), False),
        (pre_tokenizers.Metaspace(), False),
    ],
)
def test_pre_tokenizers_that_drop_text(pre_tokenizer: pre_tokenizers.PreTokenizer, known: bool) -> None:
    tokenizer = letters()
    tokenizer.pre_tokenizer = pre_tokenizer
    assert (widest_token(tokenizer) is not None) is known


BYTES = {name: i for i, name in enumerate(byte_fallback_tokens())}


@pytest.mark.parametrize(
    ("model", "known"),
    [
        (models.BPE(vocab=BYTES, merges=[], byte_fallback=True), True),
        (models.BPE(vocab={"<0x00>": 0}, merges=[], byte_fallback=True), False),
        (models.BPE(vocab=BYTES, merges=[]), False),
        (models.BPE(vocab={"<unk>": 0}, merges=[], unk_token="<unk>"), True),
        (models.BPE(vocab={"<unk>": 0}, merges=[], unk_token="<unk>", fuse_unk=True), False),
        (models.BPE(vocab=BYTES, merges=[], byte_fallback=True, continuing_subword_prefix="##"), False),
        (models.Unigram([("<unk>", 0.0)], unk_id=0), False),
        (models.WordLevel({"<unk>": 0}, unk_token="<unk>"), False),
        (models.WordPiece({"<unk>": 0}, unk_token="<unk>"), False),
    ],
)
def test_models_whose_unknown_token_stands_for_any_amount_of_text(model: models.Model, known: bool) -> None:
    assert (widest_token(Tokenizer(model)) is not None) is known


def test_an_unknown_character_may_have_more_bytes_than_its_token() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "?": 1}, merges=[], unk_token="?"))
    text = "\U0001f600" * 10
    assert num_tokens(tokenizer, text) == 10
    assert widest(tokenizer).fewest_tokens(text) == 10
