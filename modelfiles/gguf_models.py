"""The tokenizer of each ``tokenizer.ggml.model``, without its added tokens.

Models, normalizers, pre-tokenizers and decoders are those of the ``tokenizer.json`` files of the models from which GGUF
files are converted, so that token ids are those of the original tokenizers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from modelfiles.errors import ModelFileError
from modelfiles.gguf_facts import GgufFacts
from modelfiles.gguf_merges import merges_by_score, merges_of
from modelfiles.gguf_vocabulary import MODEL_KEY
from modelfiles.pre_tokenizers import PreTokenizer, pre_tokenizer_of

_MARK: Final = "\u2581"

_RANKED_BY_ID: Final = ("gemma", "gemma2", "gemma3", "gemma3n", "gemma-embedding")
"""Architectures whose merges are ordered by token id, because their scores are not in merge order."""


Builder = Callable[[GgufFacts], Tokenizer]
"""Raises ``ModelFileError`` if a key is missing or damaged."""


def builder_of(model: Any) -> Builder:
    """The builder for a ``tokenizer.ggml.model``. Raises ``ModelFileError`` if there is none."""
    build = _BUILDERS.get(model)
    if build is None:
        raise ModelFileError(
            f"unsupported tokenizer model {model!r} ({MODEL_KEY}); supported: {', '.join(sorted(_BUILDERS))}"
        )
    return build


def _byte_level(facts: GgufFacts) -> Tokenizer:
    """Byte-level BPE. Tokens outside the byte alphabet keep their ids; only their own spelling encodes to them."""
    pre = pre_tokenizer_of(facts.get("pre") or "default")
    tokenizer = Tokenizer(models.BPE(facts.ids, merges_of(facts.get("merges", [])), ignore_merges=pre.ignore_merges))
    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _splits(pre)
    tokenizer.decoder = decoders.ByteLevel()
    _surround(tokenizer, facts, bos=pre.adds_bos)
    return tokenizer


def _splits(pre: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in pre.patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _sentencepiece(facts: GgufFacts) -> Tokenizer:
    """sentencepiece BPE: any two pieces that form a token are merged, the token with the best score first.

    The space before the first word is also added to the text after each special token, as the models were trained.
    """
    ids, scores = _spaced_ids(facts), facts.scores
    if facts.vocabulary.architecture in _RANKED_BY_ID:
        scores = [-float(token_id) for token_id in ids.values()]
    merges = merges_of(facts.get("merges", [])) if scores is None else merges_by_score(ids, scores)
    tokenizer = _spaced(facts, merges, prefixed=bool(facts.get("add_space_prefix", True)))
    _surround(tokenizer, facts, bos=True)
    return tokenizer


def _gemma4(facts: GgufFacts) -> Tokenizer:
    """Pieces as in sentencepiece, merges as in byte-level BPE. The chat template writes BOS itself."""
    return _spaced(facts, merges_of(facts.get("merges", [])), prefixed=False)


def _spaced(facts: GgufFacts, merges: list[tuple[str, str]], *, prefixed: bool) -> Tokenizer:
    """BPE over whole texts with U+2581 for spaces, and byte fallback for characters without a token."""
    model = models.BPE(_spaced_ids(facts), merges, unk_token=facts.unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(" ", _MARK)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_MARK), spaces]) if prefixed else spaces
    words = [decoders.Replace(_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*words, decoders.Strip(" ", 1, 0)] if prefixed else words)
    return tokenizer


def _spaced_ids(facts: GgufFacts) -> dict[str, int]:
    """Ids by spelling, with U+2581 also in tokens that the file spells as runs of spaces."""
    ids = facts.ids
    runs = {token: token.replace(" ", _MARK) for token in ids if " " in token and not token.strip(" ")}
    return {token if (marked := runs.get(token, token)) in ids else marked: token_id for token, token_id in ids.items()}


def _unigram(facts: GgufFacts) -> Tokenizer:
    scores = facts.scores
    if scores is None:
        raise ModelFileError("tokenizer.ggml.scores is missing")
    pieces = list(zip(facts.ids, scores, strict=False))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=facts.vocabulary.roles.get("unk", 2), byte_fallback=False))
    steps: list[Any] = []
    if charsmap := facts.get("precompiled_charsmap"):
        steps.append(normalizers.Precompiled(bytes(value & 0xFF for value in charsmap)))
    if facts.get("remove_extra_whitespaces", False):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    scheme = "always" if facts.get("add_space_prefix", True) else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_MARK, prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(_MARK, prepend_scheme=scheme)
    _surround(tokenizer, facts, bos=False, eos=True)
    return tokenizer


_BUILDERS: Final[dict[str, Builder]] = {
    "gpt2": _byte_level,
    "llama": _sentencepiece,
    "gemma4": _gemma4,
    "t5": _unigram,
}


def _surround(tokenizer: Tokenizer, facts: GgufFacts, *, bos: bool, eos: bool = False) -> None:
    """Add BOS and EOS around texts that are encoded with special tokens: as the file says; ``bos`` and ``eos`` if it
    does not.

    Raises ``ModelFileError`` if the file asks for a token that it does not name.
    """
    roles, tokens = facts.vocabulary.roles, facts.vocabulary.tokens
    around: dict[str, str] = {}
    for role, default in (("bos", bos), ("eos", eos)):
        wanted = facts.get(f"add_{role}_token")
        if wanted and role not in roles:
            raise ModelFileError(f"tokenizer.ggml.add_{role}_token is true, but there is no {role}_token_id")
        if role in roles and (default if wanted is None else wanted):
            around[role] = tokens[roles[role]]
    if around:
        single = [*([around["bos"]] if "bos" in around else []), "$A", *([around["eos"]] if "eos" in around else [])]
        named = [(tokens[roles[role]], roles[role]) for role in around]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=list(dict(named).items())
        )
