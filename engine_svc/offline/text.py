"""Text and conversations to token ids, and back, with the code of the tokenizer and the detokenizer services.

So a conversation gives the same prompt here and over HTTP, and a text ends at the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from detokenizer_svc.formatter import FormatSpec, Formatter
from detokenizer_svc.stage import ReasoningState
from detokenizer_svc.vocabulary import Vocabulary
from engine_svc.offline.conversation import read_conversation
from engine_svc.offline.transformers_tokenizer import transformers_tokenizer
from engine_svc.weights.errors import load_errors
from modelfiles.errors import ModelFileError
from modelfiles.location import locate
from modelfiles.token_table import TokenTable, read_token_table, table_of_tokenizer
from modelfiles.tokenizer import LoadedTokenizer, load_tokenizer
from svclib.config import SettingsError
from tokenizer_svc.limits import DEFAULT_LIMITS
from tokenizer_svc.prompt_tokenizer import PromptTokenizer
from tokenizer_svc.renderer import Renderer

PROMPT_TAIL_TOKENS: Final = 8
"""Last tokens of a continued prompt that the detokenizer sees: at least as many as one character can take."""
_MAX_TEMPLATES: Final = 8


class Text:
    """One model's tokenizer and vocabulary. Owns a child process that renders chat templates, until ``close``.

    Control tokens spelled in texts become control tokens, because the program is trusted; those in messages stay text.
    """

    def __init__(self, path: Path, loaded: LoadedTokenizer) -> None:
        self._path = path
        self._loaded = loaded
        self._renderer = Renderer(1, DEFAULT_LIMITS)
        self._no_chat = ""
        """Why the model's own chat template cannot be used; empty if it can."""
        self._prompts = self._own_prompts()
        self._with_template = lru_cache(_MAX_TEMPLATES)(self._prompts_of)

    def close(self) -> None:
        """End the child process."""
        self._renderer.close()

    @cached_property
    def tokenizer(self) -> Any:
        """As a transformers tokenizer."""
        return transformers_tokenizer(self._path)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The detokenizer's. Raises ``ModelLoadError`` for a tokenizer with an unknown byte encoding."""
        with load_errors():
            return Vocabulary.of_table(self._table())

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The tokens that end a turn, according to the files and the chat template."""
        return frozenset(self._prompts.eos_token_ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt, with the model's special tokens around it, but at most one beginning-of-sequence token.

        A prompt made by a chat template often spells that token itself.
        """
        ids = self._prompts.tokenize(text, "prompt", add_special_tokens=True, parse_special_tokens=True)
        bos = self._prompts.bos_token_id
        spelled = self._loaded.special_tokens.get("bos_token", "")
        return ids[1:] if bos is not None and ids[:2] == [bos, bos] and text.startswith(spelled) else ids

    def encode_chat(
        self,
        messages: SequenceOf[Mapping[str, Any]],
        *,
        tools: SequenceOf[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Ids of a conversation, rendered by the model's chat template or another one.

        Raises ``ValueError`` or ``InvalidRequest`` if the template cannot express it, or there is no template.
        """
        conversation = read_conversation(
            messages,
            tools=tools or (),
            add_generation_prompt=add_generation_prompt and not continue_final_message,
            continue_final_message=continue_final_message,
            template_kwargs=chat_template_kwargs or {},
        )
        return self._prompts_for(chat_template).render(conversation).token_ids

    def formatter(self, stop: tuple[str, ...], *, min_tokens: int = 0, prompt_tail: SequenceOf[int] = ()) -> Formatter:
        """A formatter for the text of one output. ``prompt_tail`` is the end of a prompt that the output continues.

        Raises ``InvalidRequest`` for an invalid stop string.
        """
        spec = FormatSpec(
            prompt_tail_ids=tuple(prompt_tail[-PROMPT_TAIL_TOKENS:]),
            stop=stop,
            reasoning_state=ReasoningState.CLOSED,
            min_tokens=min_tokens,
        )
        return Formatter(self.vocabulary, spec)

    def _table(self) -> TokenTable:
        """From the files, as the detokenizer reads them, or else from the converted tokenizer."""
        try:
            return read_token_table(self._path)
        except ModelFileError:
            return table_of_tokenizer(self._loaded.tokenizer)

    def _own_prompts(self) -> PromptTokenizer:
        """With the model's own templates, if they are usable: programs that never chat need none."""
        try:
            return PromptTokenizer(self._loaded, self._renderer.template)
        except SettingsError as error:
            self._no_chat = str(error)
            return PromptTokenizer(replace(self._loaded, chat_templates={}), self._renderer.template)

    def _prompts_for(self, chat_template: str | None) -> PromptTokenizer:
        if chat_template is None and self._no_chat:
            raise ValueError(self._no_chat)
        return self._prompts if chat_template is None else self._with_template(chat_template)

    def _prompts_of(self, chat_template: str) -> PromptTokenizer:
        """With another template: its source, or the name of one of the model's own."""
        source = self._loaded.chat_templates.get(chat_template, chat_template)
        try:
            return PromptTokenizer(replace(self._loaded, chat_templates={"default": source}), self._renderer.template)
        except SettingsError as error:
            raise ValueError(str(error)) from None


def load_text(model: str) -> Text:
    """The tokenizer of a model: a folder, a .gguf file or a Hugging Face id.

    Raises ``ModelLoadError`` if there is no such model, or no usable tokenizer.
    """
    with load_errors():
        path = locate(model)
        return Text(path, load_tokenizer(str(path)))
