r"""Pre-tokenizers of byte-level BPE vocabularies, by the names of ``tokenizer.ggml.pre``.

A name stands for the pre-tokenizer of one family of ``tokenizer.json`` files, and for what else the family shares:
NFC normalisation, whether merges are ignored for a word that is a token, whether a prompt starts with BOS.
Names and patterns: ``llm_tokenizer_bpe`` and ``llama_vocab::impl::load`` in llama.cpp's llama-vocab.cpp, in the
spelling of the original files; llama.cpp's regular expressions differ only where its engine lacks a feature. The
patterns apply in sequence, each to the pieces that the one before has left. A file without a name is ``default``.
Refused are the pre-tokenizers that llama.cpp implements in code (kimi-k2, afmoe, superbpe, whitespace).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from modelfiles.errors import ModelFileError


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """``patterns`` are in Oniguruma's syntax; each isolates what it matches."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    """The default, if the file does not say."""
    nfc: bool = False


def pre_tokenizer_of(name: str) -> PreTokenizer:
    """Raises ``ModelFileError`` for an unsupported name."""
    if name not in PRE_TOKENIZERS:
        raise ModelFileError(
            f"unsupported pre-tokenizer {name!r} (tokenizer.ggml.pre); supported: {', '.join(sorted(PRE_TOKENIZERS))}"
        )
    return PRE_TOKENIZERS[name]


_ENDINGS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED: Final = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*")
_CASED_WITH_ENDINGS: Final = "|".join(f"{words}{_ENDINGS}?" for words in _CASED)
_SYMBOLS: Final = r" ?[^\s\p{L}\p{N}]+"
_LINES: Final = r"\s*[\r\n]+"
_SPACES: Final = r"\s+(?!\S)|\s+"
_ASCII_PUNCTUATION: Final = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_CJK: Final = "[一-龥぀-ゟ゠-ヿ]+"

_GPT2_WORDS: Final = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+|{_SYMBOLS}|{_SPACES}"
_THREE_DIGITS: Final = "[0-9][0-9][0-9]"


def _tiktoken(digits: str, *, words: str = f"{_ENDINGS}|{_WORD}", after_symbols: str = r"[\r\n]*") -> str:
    return f"{words}|{digits}|{_SYMBOLS}{after_symbols}|{_LINES}|{_SPACES}"


_DEEPSEEK_WORDS: Final = (
    rf"{_ASCII_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES}|{_SPACES}"
)
_DEEPSEEK_LETTERS: Final = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbe"
    "ῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓"
    "𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)

_DEFAULT: Final = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2_WORDS, r"\p{N}+", _THREE_DIGITS))
_GPT2: Final = PreTokenizer((_GPT2_WORDS,))
_DIGITS_FIRST: Final = PreTokenizer((r"\p{N}", _GPT2_WORDS))
_FALCON: Final = PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2_WORDS, _THREE_DIGITS))
_CL100K: Final = PreTokenizer((_tiktoken(r"\p{N}{1,3}"),))
_LLAMA3: Final = replace(_CL100K, ignore_merges=True, adds_bos=True)
_ONE_DIGIT: Final = PreTokenizer((_tiktoken(r"\p{N}"),))
_QWEN2: Final = replace(_ONE_DIGIT, nfc=True)
_QWEN35: Final = PreTokenizer(
    (
        rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES}|{_SPACES}",
    ),
    nfc=True,
)
_O200K: Final = PreTokenizer(
    (_tiktoken(r"\p{N}{1,3}", words=_CASED_WITH_ENDINGS, after_symbols=r"[\r\n/]*"),), ignore_merges=True
)
_TEKKEN: Final = PreTokenizer(
    (_tiktoken(r"\p{N}", words="|".join(_CASED), after_symbols=r"[\r\n/]*"),), ignore_merges=True, adds_bos=True
)
_DEEPSEEK_V3: Final = PreTokenizer((r"\p{N}{1,3}", _CJK, _DEEPSEEK_WORDS))
_DEEPSEEK_LLM: Final = PreTokenizer(
    (
        r"[\r\n]",
        rf"\s?[{_DEEPSEEK_LETTERS}]+",
        r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
        r"\s+$",
        "[一-龥ࠀ-一가-퟿]+",
        r"\p{N}+",
    )
)
_DEEPSEEK_CODER: Final = PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"))
_BLOOM_WORDS: Final = r" ?[^(\s|.,!?…。，、।۔،)]+"
_CHAMELEON: Final = PreTokenizer(
    (
        "<sentinel:[0-9]+>",
        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        r"([\t\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        _GPT2_WORDS,
    ),
    adds_bos=True,
)
_WIDE_SPACES: Final = "|".join(rf"\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
_JAIS2: Final = PreTokenizer((rf"{_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}[\r\n]*|{_LINES}|{_WIDE_SPACES}|\s",))
_BAILING: Final = PreTokenizer(
    (
        rf"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?+\p{{L}}+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]++[\r\n]*|\s*[\r\n]|{_SPACES}",
    )
)
_SEED_CODER: Final = PreTokenizer(
    (rf"{_ENDINGS}|{_WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINES}|{_SPACES}",),
)
_EXAONE_MOE: Final = PreTokenizer(
    (
        rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
        rf"|{_SYMBOLS}[\r\n/]?|\s*[\r\n]|{_SPACES}",
    )
)
_YOUTU: Final = PreTokenizer(
    (
        f"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|{_CJK}",
        _tiktoken(r"\p{N}", words=_CASED_WITH_ENDINGS, after_symbols=r"[\r\n/]*"),
    ),
    ignore_merges=True,
)
_TINY_AYA: Final = PreTokenizer(
    (
        r"\d{1,3}(?=(?:\d{3})*\b)",
        rf"{_CASED_WITH_ENDINGS}|\p{{N}}{{1,3}}|{_SYMBOLS}[\r\n/]*|{_LINES}|{_SPACES}",
    )
)
_LAGUNA: Final = PreTokenizer((r"[^\n]+|[\n]+", *_ONE_DIGIT.patterns))
_MINICPM5: Final = PreTokenizer((r"\p{N}{1,3}", _tiktoken(r"\p{N}+")), ignore_merges=True)
_UFAKZEKA: Final = PreTokenizer((_tiktoken(r"\p{N}", words=_WORD),))

_NAMES: Final[tuple[tuple[PreTokenizer, str], ...]] = (
    (_DEFAULT, "default"),
    (_GPT2, "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum exaone4 jais trillion"),
    (_GPT2, "granite-docling jina-v1-en jina-v2-code roberta-bpe"),
    (replace(_GPT2, nfc=True), "mpt olmo modern-bert"),
    (_DIGITS_FIRST, "smollm starcoder refact codeshell exaone minerva-7b mellum2"),
    (replace(_DIGITS_FIRST, nfc=True), "command-r"),
    (_FALCON, "falcon"),
    (_CL100K, "dbrx smaug-bpe glm4 chatglm-bpe"),
    (_LLAMA3, "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"),
    (_QWEN2, "qwen2 f2llmv2"),
    (_ONE_DIGIT, "deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2"),
    (_QWEN35, "qwen35"),
    (_O200K, "gpt-4o llama4 kanana2 talkie granite-embed-multi-97m"),
    (replace(_O200K, ignore_merges=False), "minimax-m2"),
    (_TEKKEN, "tekken"),
    (_DEEPSEEK_V3, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (_DEEPSEEK_LLM, "deepseek-llm"),
    (_DEEPSEEK_CODER, "deepseek-coder"),
    (PreTokenizer((_BLOOM_WORDS,)), "poro-chat bloom gpt3-finnish"),
    (PreTokenizer((_BLOOM_WORDS, r"\p{N}")), "viking"),
    (_CHAMELEON, "chameleon"),
    (_JAIS2, "jais-2"),
    (_BAILING, "bailingmoe bailingmoe2 llada-moe"),
    (_SEED_CODER, "seed-coder"),
    (_EXAONE_MOE, "exaone-moe"),
    (_YOUTU, "youtu"),
    (_TINY_AYA, "tiny_aya cohere2moe"),
    (_LAGUNA, "laguna"),
    (_MINICPM5, "minicpm5"),
    (_UFAKZEKA, "ufakzeka"),
)

PRE_TOKENIZERS: Final = {name: kind for kind, names in _NAMES for name in names.split()}
