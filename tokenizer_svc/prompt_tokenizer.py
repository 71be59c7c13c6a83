"""The loaded tokenizer and chat template of one model: conversations and texts to ids, and back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tokenizers import AddedToken, Tokenizer

from modelfiles.tokenizer import LoadedTokenizer
from modelfiles.vocabulary_hash import hash_of_tokenizer
from svclib.config import SettingsError
from svclib.errors import InvalidRequest, Unsupported
from tokenizer_svc import formats
from tokenizer_svc.byte_tokens import ByteTokens, NoSuchBytes
from tokenizer_svc.capabilities import Capabilities
from tokenizer_svc.chat_template import ChatTemplate
from tokenizer_svc.control_tokens import control_spellings
from tokenizer_svc.conversation import Conversation
from tokenizer_svc.encoder import Encoder
from tokenizer_svc.limits import LimitExceeded
from tokenizer_svc.prompt_length import PromptLength
from tokenizer_svc.reasoning import ReasoningState
from tokenizer_svc.template import Template, TemplateFault

Compile = Callable[[str], Template]
"""Source to template. Raises ``TemplateFault`` and ``LimitExceeded``."""


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A rendered and encoded conversation. Times are Unix seconds."""

    token_ids: list[int]
    text: str
    reasoning_state: ReasoningState
    template_version: str
    ignored_kwargs: tuple[str, ...]
    started_at: float
    rendered_at: float
    tokenized_at: float


@dataclass(frozen=True, slots=True)
class TagTokens:
    """The tags around reasoning as token ids."""

    start: tuple[int, ...]
    end: tuple[int, ...]


class PromptTokenizer:
    """Stateless between calls. Thread-safe."""

    def __init__(self, loaded: LoadedTokenizer, compile_template: Compile) -> None:
        """Raises ``SettingsError`` for an unusable chat template."""
        controls = control_spellings(loaded.tokenizer, "\0".join(loaded.chat_templates.values()))
        self._templates = _compile(loaded, controls, compile_template)
        self._encoder = Encoder(loaded.tokenizer, controls)
        self._length = PromptLength(loaded.tokenizer)
        self._byte_tokens = ByteTokens(loaded.tokenizer, self._encoder)
        self.vocab_size = self._encoder.vocab_size
        self.vocabulary_hash = hash_of_tokenizer(loaded.tokenizer, self.vocab_size, loaded.unused_ids)
        self.bos_token_id = loaded.bos_token_id
        self.reasoning_tags = {
            name: TagTokens(*(tuple(self._encoder.encode_inside(tag, parse_special_tokens=True)) for tag in tags))
            for name, tags in formats.THINK_TAGS.items()
        }
        """By name of the reasoning format."""
        self.eos_token_ids = tuple(dict.fromkeys((*loaded.eos_token_ids, *self._turn_ends(loaded.tokenizer))))

    @property
    def template_version(self) -> str:
        """sha256 of the chat template; empty if there is none."""
        return self._templates["default"].version if self._templates else ""

    @property
    def capabilities(self) -> Capabilities | None:
        """Capabilities of the chat template; None if there is none."""
        if not self._templates:
            return None
        plain, with_tools = self._templates["default"].capabilities, self._with_tools.capabilities
        return replace(with_tools, system_role=plain.system_role, developer_role=plain.developer_role)

    @property
    def tool_format(self) -> str:
        return formats.tool_format(self._with_tools.source) if self._templates else formats.NONE

    @property
    def reasoning_format(self) -> str:
        return formats.reasoning_format(self._templates["default"].source) if self._templates else formats.NONE

    @property
    def template_variables(self) -> frozenset[str]:
        """The variables that the chat template reads; with several templates, those that all of them read."""
        read = [template.variables for template in self._templates.values()]
        return frozenset.intersection(*read) if read else frozenset()

    def render(self, conversation: Conversation) -> TokenizedPrompt:
        """The prompt of a conversation. Raises ``InvalidRequest``."""
        if not self._templates:
            raise Unsupported("this model has no chat template", param="messages")
        started_at = time.time()
        template = self._with_tools if conversation.tools else self._templates["default"]
        prompt = template.render(conversation)
        rendered_at = time.time()
        self._length.check_text(prompt.text, prompt.mark, conversation.max_tokens)
        ids, text = self._encoder.encode_prompt(prompt.text, prompt.mark)
        self._length.check(len(ids), conversation.max_tokens)
        return TokenizedPrompt(
            token_ids=ids,
            text=text,
            reasoning_state=prompt.reasoning_state,
            template_version=template.version,
            ignored_kwargs=prompt.ignored_kwargs,
            started_at=started_at,
            rendered_at=rendered_at,
            tokenized_at=time.time(),
        )

    def tokenize(
        self, value: str | bytes, param: str, *, add_special_tokens: bool, parse_special_tokens: bool
    ) -> list[int]:
        """Ids of a text, or of bytes that need not be valid UTF-8. Raises ``InvalidRequest``, naming ``param``."""
        if isinstance(value, str):
            return self._encoder.encode(
                value, add_special_tokens=add_special_tokens, parse_special_tokens=parse_special_tokens
            )
        if add_special_tokens:
            raise InvalidRequest("add_special_tokens is for texts, not for raw bytes", param="add_special_tokens")
        try:
            return self._byte_tokens.encode(value, parse_special_tokens=parse_special_tokens)
        except NoSuchBytes:
            raise InvalidRequest("this model's vocabulary has no tokens for these bytes", param=param) from None

    def detokenize(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        """The text of token ids. Raises ``InvalidRequest`` for an id outside the vocabulary."""
        return self._encoder.decode(ids, skip_special_tokens=skip_special_tokens)

    @property
    def _with_tools(self) -> ChatTemplate:
        """The template for conversations with tools."""
        return self._templates.get("tool_use") or self._templates["default"]

    def _turn_ends(self, tokenizer: Tokenizer) -> Iterator[int]:
        """The special tokens with which the templates end an assistant turn."""
        added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
        special = "|".join(re.escape(token.content) for token in added.values() if token.special) or "(?!)"
        for template in self._templates.values():
            answer = re.match(rf"\s*({special})", template.capabilities.answer_end)
            call = re.search(rf"({special})\s*$", template.capabilities.call_end)
            for end in (answer, call):
                token_id = tokenizer.token_to_id(end[1]) if end else None
                if end and token_id is not None and not _goes_on(end[1], tokenizer):
                    yield token_id


def _goes_on(spelling: str, tokenizer: Tokenizer) -> bool:
    """Whether a turn continues after this token: a tag around calls, or harmony's end of one message of a turn.

    Harmony is recognised by its tokens, as llama.cpp does.
    """
    if spelling == "<|end|>":
        return all(tokenizer.token_to_id(other) is not None for other in ("<|return|>", "<|call|>"))
    return "tool" in spelling


def _compile(loaded: LoadedTokenizer, controls: frozenset[str], compile_template: Compile) -> dict[str, ChatTemplate]:
    sources = {name: source for name, source in loaded.chat_templates.items() if name in ("default", "tool_use")}
    if loaded.chat_templates and "default" not in sources:
        raise SettingsError(f"no chat template 'default' among {', '.join(sorted(loaded.chat_templates))}")
    try:
        return {
            name: ChatTemplate(compile_template(source), loaded.special_tokens, controls)
            for name, source in sources.items()
        }
    except (TemplateFault, LimitExceeded) as error:
        raise SettingsError(f"the chat template cannot be used: {error}") from error
