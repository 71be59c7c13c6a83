"""The tokenizer that a GGUF file describes, built from what the file says.

Meanings of the keys: llama.cpp's llama-vocab.cpp. Forms of the parts: the ``tokenizer.json`` files of the models from
which such files are made, so that ids are those of the original tokenizers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from modelfiles.errors import ModelFileError
from modelfiles.gguf_merges import merges_by_score, merges_of
from modelfiles.gguf_metadata import read_metadata
from modelfiles.gguf_vocabulary import (
    ADDED_KINDS,
    MODEL_KEY,
    SPECIAL_KINDS,
    VOCABULARY_KEYS,
    GgufVocabulary,
    TokenKind,
)
from modelfiles.pre_tokenizers import PreTokenizer, pre_tokenizer_of

_GGML: Final = "tokenizer.ggml."
_TEMPLATE: Final = "tokenizer.chat_template"
_FACTS: Final = (
    "pre", "scores", "merges", "add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces",
    "precompiled_charsmap",
)  # fmt: skip
_KEYS: Final = VOCABULARY_KEYS | {"general.name", _TEMPLATE, *(_GGML + fact for fact in _FACTS)}
_ROLE_NAMES: Final = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unk", "pad_token": "pad"}
_MARK: Final = "\u2581"

_RANKED_BY_ID: Final = ("gemma", "gemma2", "gemma3", "gemma3n", "gemma-embedding")
"""Architectures whose scores do not follow the order of the merges; the order of the tokens does."""
_MASK_TAKES_LEFT: Final = ("jina-v2-de", "jina-v2-es", "jina-v2-code", "nomic-bert-moe", "jina-bert-v3", "modern-bert")
_PHI3: Final = ("phi-3", "phi3")
_PHI3_LEAVES: Final = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """A tokenizer and what its file says of it."""

    tokenizer: Tokenizer
    vocabulary: GgufVocabulary
    special_tokens: Mapping[str, str]
    """Spellings by the names that chat templates know, such as ``bos_token``."""
    chat_templates: Mapping[str, str]
    """By name; ``default`` is the one that has none in the file."""


def load_gguf_tokenizer(path: Path) -> GgufTokenizer:
    """Raises ``ModelFileError`` naming what is damaged or not supported, or ``OSError``."""
    metadata = read_metadata(path, _KEYS, prefixes=(_TEMPLATE + ".",))
    kind: Any = metadata.get(MODEL_KEY)
    build = _BUILDERS.get(kind)
    if build is None:
        raise ModelFileError(
            f"a tokenizer of the kind {kind!r} ({MODEL_KEY}) is not supported; "
            f"supported are {', '.join(sorted(_BUILDERS))}"
        )
    vocabulary = GgufVocabulary.of(metadata)
    facts = _Facts(vocabulary, metadata)
    tokenizer = build(facts)
    _add_tokens(tokenizer, facts)
    return GgufTokenizer(tokenizer, vocabulary, _named(vocabulary), _chat_templates(metadata))


@dataclass(frozen=True, slots=True)
class _Facts:
    """The vocabulary and the other keys under ``tokenizer.ggml``."""

    vocabulary: GgufVocabulary
    metadata: Mapping[str, Any]

    def get(self, key: str, missing: Any = None) -> Any:
        return self.metadata.get(_GGML + key, missing)

    @property
    def ids(self) -> dict[str, int]:
        """Ids by spelling. Raises ``ModelFileError`` if two tokens are spelled alike."""
        tokens = self.vocabulary.tokens
        ids = {token: token_id for token_id, token in enumerate(tokens)}
        if len(ids) < len(tokens):
            twice = next(token for token_id, token in enumerate(tokens) if ids[token] != token_id)
            raise ModelFileError(f"tokenizer.ggml.tokens has {twice[:100]!r} more than once")
        return ids

    @property
    def scores(self) -> list[float] | None:
        scores = self.get("scores")
        if scores is not None and len(scores) < len(self.vocabulary.tokens):
            raise ModelFileError("tokenizer.ggml.scores has fewer items than there are tokens")
        return scores  # type: ignore[no-any-return]

    @property
    def unknown(self) -> str | None:
        token_id = self.vocabulary.roles.get("unk")
        return None if token_id is None else self.vocabulary.tokens[token_id]


def _byte_level(facts: _Facts) -> Tokenizer:
    """Byte-level BPE. Tokens outside the byte alphabet keep their ids: no text is made of them but their own."""
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


def _sentencepiece(facts: _Facts) -> Tokenizer:
    """sentencepiece's BPE: any two pieces that make a token are merged, the best scored first.

    The space before a first word is put before the text after each special token, too, as the models were trained.
    """
    ids, scores = _spaced_ids(facts), facts.scores
    if facts.vocabulary.architecture in _RANKED_BY_ID:
        scores = [-float(token_id) for token_id in ids.values()]
    merges = merges_of(facts.get("merges", [])) if scores is None else merges_by_score(ids, scores)
    tokenizer = _spaced(facts, merges, prefixed=bool(facts.get("add_space_prefix", True)))
    _surround(tokenizer, facts, bos=True)
    return tokenizer


def _gemma4(facts: _Facts) -> Tokenizer:
    """Pieces as in sentencepiece, merges as in byte-level BPE. The chat template writes the first token itself."""
    return _spaced(facts, merges_of(facts.get("merges", [])), prefixed=False)


def _spaced(facts: _Facts, merges: list[tuple[str, str]], *, prefixed: bool) -> Tokenizer:
    """BPE over whole texts with U+2581 for spaces, and bytes for what there is no token for."""
    model = models.BPE(_spaced_ids(facts), merges, unk_token=facts.unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(" ", _MARK)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_MARK), spaces]) if prefixed else spaces
    words = [decoders.Replace(_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*words, decoders.Strip(" ", 1, 0)] if prefixed else words)
    return tokenizer


def _spaced_ids(facts: _Facts) -> dict[str, int]:
    """Ids by spelling, where runs of spaces are spelled with marks as all other spaces are."""
    ids = facts.ids
    runs = {token: token.replace(" ", _MARK) for token in ids if " " in token and not token.strip(" ")}
    return {token if (marked := runs.get(token, token)) in ids else marked: token_id for token, token_id in ids.items()}


def _unigram(facts: _Facts) -> Tokenizer:
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


_BUILDERS: Final[dict[str, Callable[[_Facts], Tokenizer]]] = {
    "gpt2": _byte_level,
    "llama": _sentencepiece,
    "gemma4": _gemma4,
    "t5": _unigram,
}


def _surround(tokenizer: Tokenizer, facts: _Facts, *, bos: bool, eos: bool = False) -> None:
    """Put BOS and EOS around a text that asks for special tokens: as the file says, or else as its kind of file does.

    Raises ``ModelFileError`` when the file wants a token that it does not name.
    """
    roles, tokens = facts.vocabulary.roles, facts.vocabulary.tokens
    around: dict[str, str] = {}
    for role, usual in (("bos", bos), ("eos", eos)):
        wanted = facts.get(f"add_{role}_token")
        if wanted and role not in roles:
            raise ModelFileError(f"tokenizer.ggml.add_{role}_token is true, but there is no {role}_token_id")
        if role in roles and (usual if wanted is None else wanted):
            around[role] = tokens[roles[role]]
    if around:
        single = [*([around["bos"]] if "bos" in around else []), "$A", *([around["eos"]] if "eos" in around else [])]
        named = [(tokens[roles[role]], roles[role]) for role in around]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=list(dict(named).items())
        )


def _add_tokens(tokenizer: Tokenizer, facts: _Facts) -> None:
    """Let control and user-defined tokens be found whole in a text, each under the id that it has in the file."""
    vocabulary = facts.vocabulary
    takes_right = _takes_right(facts)
    takes_left = _takes_left(facts)
    for special in (True, False):
        kinds = SPECIAL_KINDS if special else (TokenKind.USER_DEFINED,)
        added = [
            AddedToken(
                token, lstrip=token in takes_left, rstrip=token in takes_right, normalized=False, special=special
            )
            for token in (vocabulary.tokens[token_id] for token_id in vocabulary.ids_of_kinds(kinds))
            if tokenizer.token_to_id(token) is not None  # all but runs of spaces, which merge as other text does
        ]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)


def _takes_right(facts: _Facts) -> frozenset[str]:
    """Tokens that take the white space on their right; the file does not say so, and llama.cpp goes by names too."""
    vocabulary = facts.vocabulary
    name = str(facts.metadata.get("general.name", "")).lower()
    is_phi3 = vocabulary.architecture == "phi3" and vocabulary.model == "llama"
    if not is_phi3 and not any(part in name for part in _PHI3):
        return frozenset()
    added = {vocabulary.tokens[token_id] for token_id in vocabulary.ids_of_kinds(ADDED_KINDS)}
    return frozenset(added - set(_PHI3_LEAVES))


def _takes_left(facts: _Facts) -> frozenset[str]:
    names = (
        str(facts.get("pre", "")),
        facts.vocabulary.architecture,
        str(facts.metadata.get("general.name", "")).lower(),
    )
    return frozenset(("<mask>", "[MASK]") if any(part in name for part in _MASK_TAKES_LEFT for name in names) else ())


def _named(vocabulary: GgufVocabulary) -> dict[str, str]:
    """Special tokens by name. What a file calls padding is sometimes a word, and stays one."""
    ids = {name: vocabulary.roles[role] for name, role in _ROLE_NAMES.items() if role in vocabulary.roles}
    return {name: vocabulary.tokens[n] for name, n in ids.items() if vocabulary.kinds[n] in ADDED_KINDS}


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    named = {
        key.removeprefix(_TEMPLATE + "."): text for key, text in metadata.items() if key.startswith(_TEMPLATE + ".")
    }
    default = {"default": metadata[_TEMPLATE]} if metadata.get(_TEMPLATE) else {}
    return {name: text for name, text in (named | default).items() if isinstance(text, str)}
