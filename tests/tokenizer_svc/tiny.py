"""Small tokenizers of each kind that models use, trained on a few sentences."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CONTROLS: Final = ("<|im_start|>", "<|im_end|>", "<s>", "</s>")
TAGS: Final = ("<think>", "</think>", "<tool_call>", "</tool_call>")
_CORPUS: Final = (
    "The quick brown fox jumps over the lazy dog. 0123456789",
    "user assistant system tool start end think call <|im start end|> < > / | s",
    "Zürich über naïve 你好 x  y   z\n\n\tdone",
)


def byte_level() -> Tokenizer:
    """Like GPT-2, Llama 3, Qwen: byte-level."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(_CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    return _with_added(tokenizer)


def sentencepiece() -> Tokenizer:
    """Like Llama 2 today: a space before the first word of the whole text only."""
    tokenizer = _byte_fallback()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return _with_added(_trained(tokenizer))


def legacy_sentencepiece() -> Tokenizer:
    """Like earlier Llama 2 files: a space before each piece of text, added by the normalizer."""
    tokenizer = _byte_fallback()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _with_added(_trained(tokenizer))


def gemma() -> Tokenizer:
    """Like Gemma: spaces replaced, runs of line breaks and HTML tags as added tokens that are text."""
    tokenizer = _byte_fallback()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer = _with_added(_trained(tokenizer))
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("\n\n", "\n\n\n", "<b>", "</b>")])
    return tokenizer


def greedy() -> Tokenizer:
    """A vocabulary with the control tokens as ordinary pieces, so that plain text merges into them."""
    letters = sorted({letter for text in (*_CORPUS, *CONTROLS, *TAGS) for letter in text.replace(" ", "▁")})
    pieces = [("<unk>", 0.0), *((letter, -10.0) for letter in letters), *((text, -1.0) for text in CONTROLS)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Replace("▁", " ")
    return _with_added(tokenizer)


def normalizing() -> Tokenizer:
    """Matches its control tokens after normalization; they strip white space on their left."""
    tokenizer = byte_level()
    other = Tokenizer(tokenizer.model)
    other.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex("\u200b"), "")])
    other.pre_tokenizer = tokenizer.pre_tokenizer
    other.decoder = tokenizer.decoder
    other.add_special_tokens([AddedToken(text, normalized=True, special=True, lstrip=True) for text in CONTROLS])
    other.add_tokens([AddedToken(text, normalized=True) for text in TAGS])
    return other


ALL: Final[dict[str, Callable[[], Tokenizer]]] = {
    make.__name__: cache(make) for make in (byte_level, sentencepiece, legacy_sentencepiece, gemma, greedy, normalizing)
}


def _byte_fallback() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _trained(tokenizer: Tokenizer) -> Tokenizer:
    specials = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(_CORPUS, trainers.BpeTrainer(vocab_size=450, special_tokens=specials))
    return _without_added(tokenizer)


def _without_added(tokenizer: Tokenizer) -> Tokenizer:
    """Training adds the byte tokens as special tokens; in real vocabularies they are ordinary."""
    plain = Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        plain.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        plain.pre_tokenizer = tokenizer.pre_tokenizer
    plain.decoder = tokenizer.decoder
    return plain


def _with_added(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in CONTROLS])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in TAGS])
    return tokenizer
