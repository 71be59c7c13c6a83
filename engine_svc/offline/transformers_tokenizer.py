"""A model's tokenizer as a transformers tokenizer, for programs that want one. The engine does not use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def transformers_tokenizer(path: Path) -> Any:
    """From a folder or a .gguf file, with the same ids as ours."""
    if path.suffix == ".gguf":
        return _from_gguf(path)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)


def _from_gguf(path: Path) -> Any:
    """Our own tokenizer wrapped for transformers, whose GGUF conversion drops the pre-tokenizer."""
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
