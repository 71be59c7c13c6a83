"""Finds the capabilities of a chat template by rendering small conversations with sentinel words.

The source of a template does not show them reliably: templates refuse roles with an exception, silently drop turns,
print ``None``, print the Python form of a list, and concatenate strings with other types. So each capability is tried.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenizer_svc.capabilities import Capabilities, NullContent, Turn, with_null_content
from tokenizer_svc.formats import NONE, reasoning_format
from tokenizer_svc.limits import LimitExceeded
from tokenizer_svc.template import Template, TemplateFault, TemplateRefusal

_USER: Final = "QXUSERQX"
_OTHER: Final = "QXOTHERQX"
_SYSTEM: Final = "QXSYSTEMQX"
_LATER: Final = "QXLATERQX"
_ANSWER: Final = "QXANSWERQX"
_RESULT: Final = "QXRESULTQX"
_TOOL: Final = "qxtoolqx"
_CALL_ID: Final = "qxcall001"  # Mistral's templates require nine letters and digits.
_KEY: Final = "qxkeyqx"
_VALUE: Final = "qxvalueqx"
_ARGUMENTS: Final = {_KEY: _VALUE}
_BARE_TOOL: Final[Turn] = {"type": "function", "function": {"name": _TOOL}}
_PARAMETERS: Final = {
    "type": "object",
    "properties": {_KEY: {"type": "string", "description": "d"}},
    "required": [_KEY],
}
_FULL_TOOL: Final[Turn] = {
    "type": "function",
    "function": {"name": _TOOL, "description": "d", "parameters": _PARAMETERS},
}


def probe(template: Template, special_tokens: Mapping[str, str]) -> Capabilities:
    """The capabilities of a template.

    Raises ``TemplateFault`` if it cannot render a single user turn, or exceeds a limit in any probe.
    """
    return _Probe(template, special_tokens).capabilities()


@dataclass(frozen=True, slots=True)
class _CallForm:
    """The form in which a template reads tool calls of the assistant."""

    as_object: bool
    content: NullContent

    @property
    def arguments(self) -> Turn | str:
        return _ARGUMENTS if self.as_object else json.dumps(_ARGUMENTS)

    @property
    def turn(self) -> Turn:
        function = {"name": _TOOL, "arguments": self.arguments}
        turn: Turn = {"role": "assistant", "tool_calls": [{"id": _CALL_ID, "type": "function", "function": function}]}
        return with_null_content(turn, self.content)

    def is_shown(self, text: str, before: str) -> bool:
        """Whether the text has name and arguments as JSON, not as Python or as a string in a string."""
        wanted = (_TOOL, _KEY, _VALUE) if self.as_object else (_TOOL, json.dumps(_ARGUMENTS))
        unwanted = (f"'{_KEY}'", "None", "undefined")
        return all(text.count(word) > before.count(word) for word in wanted) and not any(
            text.count(word) > before.count(word) for word in unwanted
        )


_CALL_FORMS: Final = tuple(itertools.starmap(_CallForm, itertools.product((True, False), NullContent)))
"""Best first: with objects, a template writes the JSON as in the model's training."""


class _Probe:
    def __init__(self, template: Template, special_tokens: Mapping[str, str]) -> None:
        self._template = template
        self._special_tokens = special_tokens
        self._strings = True
        self._strings = _USER in self._render(self._user)
        if not self._strings and _USER not in self._render(self._user):
            raise TemplateFault(f"cannot render a conversation of one user message{self._reason()}")

    def capabilities(self) -> Capabilities:
        tools = self._shows_tool(_FULL_TOOL)
        offered = [_FULL_TOOL] if tools else None
        form = self._call_form(offered)
        return Capabilities(
            system_role=self._shows(_SYSTEM, self._turn("system", _SYSTEM), self._user),
            late_system=self._shows_late_system(),
            developer_role=self._shows_developer(),
            content_strings=self._strings,
            content_parts=self._shows_parts(),
            tools=tools,
            bare_tools=self._shows_tool(_BARE_TOOL),
            tool_calls=form is not None,
            text_beside_calls=form is not None and self._shows_text_beside(form, offered),
            null_content=form.content if form else NullContent.EMPTY,
            tool_results=self._shows_result(form, offered),
            arguments_as_object=form is not None and form.as_object,
            strict_alternation=not self._shows(_OTHER, self._turn("user", _OTHER), self._user),
            writes_bos=self._writes_bos(),
            reasoning=reasoning_format(self._template.source) != NONE,
            generation_opening=self._generation_opening(),
            answer_end=_after(_ANSWER, self._render(self._user, self._turn("assistant", _ANSWER))),
            call_end=_after(_VALUE, self._render(self._user, form.turn, tools=offered)) if form else "",
        )

    @property
    def _user(self) -> Turn:
        return self._turn("user", _USER)

    def _turn(self, role: str, text: str) -> Turn:
        return {"role": role, "content": text if self._strings else [{"type": "text", "text": text}]}

    def _variables(self, messages: tuple[Turn, ...], **more: Any) -> Turn:
        fixed = {"messages": list(messages), "tools": None, "documents": None, "add_generation_prompt": False}
        return {**fixed, **self._special_tokens, **more}

    def _render(self, *messages: Turn, **more: Any) -> str:
        """The rendered text; empty if the template fails."""
        try:
            return self._template.render(self._variables(messages, **more))
        except (TemplateRefusal, TemplateFault):
            return ""
        except LimitExceeded as error:
            # A template that exceeds a limit here is broken, and every further probe could take as long.
            raise TemplateFault(f"cannot render a small conversation: {error}") from None

    def _reason(self) -> str:
        try:
            self._template.render(self._variables((self._user,)))
        except (TemplateRefusal, TemplateFault) as error:
            return f": {error}"
        return ""

    def _shows(self, sentinel: str, *messages: Turn) -> bool:
        """Whether the text has the sentinel and the user turn of the conversation."""
        text = self._render(*messages)
        return sentinel in text and _USER in text

    def _shows_late_system(self) -> bool:
        system, later, answer = (self._turn("system", _SYSTEM), self._turn("system", _LATER), self._answer)
        return self._shows(_LATER, system, self._user, answer, later, self._user) and (
            self._shows(_LATER, system, later, self._user)
        )

    @property
    def _answer(self) -> Turn:
        return self._turn("assistant", _ANSWER)

    def _shows_developer(self) -> bool:
        """Templates that print any role also print this one; only those that name it were trained with it."""
        named = "developer" in self._template.source
        return named and self._shows(_SYSTEM, self._turn("developer", _SYSTEM), self._user)

    def _shows_parts(self) -> bool:
        parts = [{"type": "text", "text": text} for text in (_USER, _OTHER)]
        text = self._render({"role": "user", "content": parts})
        return _USER in text and _OTHER in text and "'type'" not in text and '"type"' not in text

    def _shows_tool(self, tool: Turn) -> bool:
        return _TOOL in self._render(self._user, tools=[tool])

    def _call_form(self, tools: list[Turn] | None) -> _CallForm | None:
        """The best form that the template renders; None if it renders no calls."""
        before = self._render(self._user, tools=tools)
        for form in _CALL_FORMS:
            if form.is_shown(self._render(self._user, form.turn, tools=tools), before):
                return form
        return None

    def _shows_text_beside(self, form: _CallForm, tools: list[Turn] | None) -> bool:
        text = self._render(self._user, {**form.turn, **self._answer}, tools=tools)
        return _ANSWER in text and _VALUE in text

    def _shows_result(self, form: _CallForm | None, tools: list[Turn] | None) -> bool:
        before = form.turn if form else self._answer
        result = {**self._turn("tool", _RESULT), "tool_call_id": _CALL_ID, "name": _TOOL}
        return _RESULT in self._render(self._user, before, result, tools=tools)

    def _writes_bos(self) -> bool:
        bos = self._special_tokens.get("bos_token", "")
        return bool(bos) and self._render(self._user).startswith(bos)

    def _generation_opening(self) -> str:
        closed = self._render(self._user)
        opened = self._render(self._user, add_generation_prompt=True)
        pairs = enumerate(zip(closed, opened, strict=False))
        return opened[next((i for i, (a, b) in pairs if a != b), min(len(closed), len(opened))) :]


def _after(sentinel: str, text: str) -> str:
    return text.rpartition(sentinel)[2] if sentinel in text else ""
