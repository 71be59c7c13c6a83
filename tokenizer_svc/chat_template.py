"""Messages and tools to the text of a prompt (hop 3)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import structlog

from svclib.errors import InvalidRequest, Unsupported
from tokenizer_svc.adapt import adapt_messages, adapt_tools
from tokenizer_svc.capabilities import Capabilities, Turn
from tokenizer_svc.client_json import parse_object
from tokenizer_svc.client_text import ClientText, Marks, choose_marks
from tokenizer_svc.conversation import Conversation
from tokenizer_svc.limits import LimitExceeded
from tokenizer_svc.probe import probe
from tokenizer_svc.reasoning import PromptTail, ReasoningState
from tokenizer_svc.template import GLOBAL_NAMES, Template, TemplateFault, TemplateRefusal

_FIXED: Final = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"})
_MAX_MESSAGE: Final = 500

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt. Its ``text`` still has a ``mark`` wherever client text spells a control token.

    ``ignored_kwargs`` are the names of the client's variables that the template does not read.
    """

    text: str
    mark: str
    reasoning_state: ReasoningState
    ignored_kwargs: tuple[str, ...]


class ChatTemplate:
    """A model's chat template and its capabilities. Thread-safe."""

    def __init__(self, template: Template, special_tokens: Mapping[str, str], controls: frozenset[str]) -> None:
        """``special_tokens`` by template variable, such as ``bos_token``; ``controls`` are spellings of control tokens.

        Raises ``TemplateFault`` if the template cannot render the simplest conversation.
        """
        self._template = template
        self._special_tokens = dict(special_tokens)
        self._reserved = _FIXED | GLOBAL_NAMES | special_tokens.keys()
        self.version = hashlib.sha256(template.source.encode()).hexdigest()
        self.capabilities: Capabilities = probe(template, special_tokens)
        self._client_text = ClientText(controls, template.source)
        self._tail = PromptTail(template.source, self.capabilities.generation_opening, controls)

    @property
    def source(self) -> str:
        return self._template.source

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that the template reads."""
        return self._template.variables

    def render(self, conversation: Conversation) -> Prompt:
        """The prompt of a conversation. Raises ``InvalidRequest`` if the template cannot express it."""
        kwargs = self._kwargs(conversation)
        opens_answer = _opens_answer(conversation)
        messages = adapt_messages(conversation.messages, self.capabilities)
        tools = adapt_tools(conversation.tools, self.capabilities)
        marks = choose_marks(messages, tools, kwargs)
        messages = [self._client_text.protect_message(turn, marks.broken) for turn in messages]
        if conversation.continue_final_message:
            _append(messages[-1], f"{marks.end} ")
        text = self._write(
            {
                "messages": messages,
                "tools": self._client_text.protect(tools, marks.broken),
                "documents": None,
                "add_generation_prompt": opens_answer,
                **self._special_tokens,
                **{name: self._client_text.protect(value, marks.broken) for name, value in kwargs.items()},
            },
            marks,
        )
        if conversation.continue_final_message:
            text = _cut(text, marks.end)
        answers = opens_answer or conversation.continue_final_message
        ignored = tuple(sorted(kwargs.keys() - self._template.variables))
        return Prompt(text, marks.broken, self._tail.state(text if answers else ""), ignored)

    def _kwargs(self, conversation: Conversation) -> dict[str, Any]:
        if not conversation.template_kwargs:
            return {}
        kwargs = parse_object(conversation.template_kwargs, "chat_template_kwargs")
        if reserved := sorted(self._reserved.intersection(kwargs)):
            raise InvalidRequest(
                f"chat_template_kwargs must not set {', '.join(reserved)}", param="chat_template_kwargs"
            )
        return kwargs

    def _write(self, variables: Mapping[str, Any], marks: Marks) -> str:
        try:
            return marks.restored(self._template.render(variables))
        except TemplateRefusal as error:
            message = re.sub(f"[{marks.broken}{marks.end}]", "", str(error))
            raise InvalidRequest(message[:_MAX_MESSAGE], param="messages") from None
        except LimitExceeded as error:
            raise InvalidRequest(str(error), param="messages") from None
        except TemplateFault as error:
            log.warning("chat template failed", fault=str(error))
            raise InvalidRequest(
                "this model's chat template cannot express this conversation", param="messages"
            ) from error


def _opens_answer(conversation: Conversation) -> bool:
    """Whether the prompt ends with the start of an assistant turn. Raises ``InvalidRequest`` for conflicting fields."""
    if not conversation.messages:
        raise InvalidRequest("messages must not be empty", param="messages")
    if not conversation.continue_final_message:
        return conversation.add_generation_prompt is not False
    if conversation.add_generation_prompt:
        _refuse_continuation("cannot be combined with add_generation_prompt")
    final = conversation.messages[-1]
    if final.role != "assistant" or final.content is None or final.tool_calls:
        _refuse_continuation("requires a last message of the assistant, with content and without tool calls")
    return False


def _refuse_continuation(reason: str) -> NoReturn:
    raise InvalidRequest(f"continue_final_message {reason}", param="continue_final_message")


def _append(turn: Turn, text: str) -> None:
    """Append to the content of a turn, or to its last part."""
    if isinstance(turn["content"], list):
        parts = turn["content"] or [{"type": "text", "text": ""}]
        turn["content"] = [*parts[:-1], {**parts[-1], "text": parts[-1]["text"] + text}]
    else:
        turn["content"] += text


def _cut(text: str, end: str) -> str:
    """The prompt up to the end of the final message. If the template trims the message, so does this."""
    before, found, after = text.rpartition(end)
    if not found:
        raise Unsupported("this model's chat template does not render the last message", param="continue_final_message")
    return before if after.startswith(" ") else before.rstrip()
