"""The model's tokenizer: text and conversations to token ids, and back."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

from engine_svc.weights.errors import ModelLoadError
from engine_svc.weights.source import locate
from modelfiles.lfs import check_no_pointers


class Text:
    """Wraps a tokenizer of transformers. Texts are the program's own: control tokens spelled in them become those."""

    def __init__(self, tokenizer: Any) -> None:
        """Raises ``ValueError`` for a tokenizer that is not one of the ``tokenizers`` library."""
        if not tokenizer.is_fast:
            raise ValueError(f"{type(tokenizer).__name__} is not supported: there must be a tokenizer.json")
        self.tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()

    @property
    def eos_token_ids(self) -> frozenset[int]:
        eos = self.tokenizer.eos_token_id
        return frozenset() if eos is None else frozenset((eos,))

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt, with the tokens that the model wants around it, but never with two that begin a sequence.

        A prompt made by a chat template often spells the first one itself.
        """
        ids: list[int] = self._backend.encode(text).ids
        bos = self.tokenizer.bos_token_id
        doubled = bos is not None and ids[:2] == [bos, bos] and text.startswith(self.tokenizer.bos_token)
        return ids[1:] if doubled else ids

    def encode_chat(self, messages: SequenceOf[Any], **options: Any) -> list[int]:
        """Ids of a conversation, written by the model's chat template in transformers' sandbox.

        ``options`` are those of ``apply_chat_template``. Raises ``ValueError`` when the model has no template, and what
        the template raises.
        """
        text = self.tokenizer.apply_chat_template(list(messages), tokenize=False, **options)
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: Iterable[int]) -> str:
        """Their text, without special tokens."""
        text: str = self._backend.decode(list(token_ids), skip_special_tokens=True)
        return text


def load_text(model: str) -> Text:
    """The tokenizer that belongs to a model: a folder, a .gguf file or a Hugging Face id.

    Raises ``ModelLoadError`` if there is no such model, or no usable tokenizer.
    """
    path = locate(model)
    try:
        if path.is_dir():
            check_no_pointers(path, ("*.json", "*.jinja", "*.model"))
        return Text(_from_gguf(path) if path.suffix == ".gguf" else _from_hugging_face(model))
    except Exception as error:  # The libraries raise whatever they like at files they do not understand.
        raise ModelLoadError(f"cannot load a tokenizer from {model}: {error}") from error


def _from_gguf(path: Path) -> Any:
    """The tokenizer of the services, in transformers' clothes: it has the chat templates, and their sandbox."""
    from transformers import TokenizersBackend

    from modelfiles.gguf_tokenizer import load_gguf_tokenizer

    loaded = load_gguf_tokenizer(path)
    templates = dict(loaded.chat_templates)
    return TokenizersBackend(  # type: ignore[no-untyped-call]
        tokenizer_object=loaded.tokenizer,
        post_processor=loaded.tokenizer.post_processor,
        chat_template=templates if templates.keys() - {"default"} else templates.get("default"),
        **loaded.special_tokens,
    )


def _from_hugging_face(model: str) -> Any:
    from transformers import AutoTokenizer

    folder = Path(model).expanduser()
    source, is_local = (str(folder), True) if folder.is_dir() else (model, False)
    return AutoTokenizer.from_pretrained(source, local_files_only=is_local, trust_remote_code=False)
