"""Grammars of tool calls, checked with the engine's own grammar compiler."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from engine_svc.grammar.token_bytes import TokenBytes
from engine_svc.grammar.vocabulary import vocabulary_of
from gateway.generation.call_grammar import CallGrammar, CallSyntax
from gateway.generation.request import Tool
from gateway.policy.limits import MAX_TOOL_CALLS

HERMES = CallSyntax("<tool_call>", '\n{"name": "', '", "arguments": ', "}\n</tool_call>", "\n")
AWKWARD = CallSyntax("[/tool\n\t.*+]", ' "\\|é\n', '"/\\', "\t]\\", "|\n")
"""With the metacharacters of grammars and regular expressions."""

CITY = Tool(
    "get_weather",
    parameters_json=json.dumps(
        {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        }
    ),
)
PING = Tool("ping")
TOOLS = (CITY, PING)

BYTES = lru_cache(LLTokenizer)("byte")


def matches(grammar: str, text: str | list[int], vocabulary: LLTokenizer | None = None) -> bool:
    """Whether the grammar accepts the whole text."""
    matcher = LLMatcher(vocabulary or BYTES, LLMatcher.grammar_from_lark(grammar))
    assert not matcher.is_error(), matcher.get_error()
    tokens = BYTES.tokenize_str(text) if isinstance(text, str) else text
    return all(matcher.try_consume_tokens([token]) for token in tokens) and matcher.is_accepting()


def call(name: str, arguments: Any, syntax: CallSyntax = HERMES) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f"{syntax.opening}{syntax.before_name}{name}{syntax.before_arguments}{text}{syntax.closing}"


GOOD, OTHER = call("get_weather", {"city": "Paris </tool_call>"}), call("ping", {})
WRONG = call("get_weather", {"town": "Paris"})

ONLY_CALLS = [
    ("", False, False),
    ("Hello", False, False),
    ("{}", False, False),
    (GOOD, True, True),
    (OTHER, True, True),
    (f"{GOOD}\n{OTHER}\n{GOOD}", True, False),
    (f"{GOOD}\n", False, False),
    (f"Well: {GOOD}", False, False),
    (f"{GOOD}{OTHER}", False, False),
    (WRONG, False, False),
    (call("get_weather", {}), False, False),
    (call("get_weather", '"Paris"'), False, False),
    (call("ping", {"a": 1}), False, False),
    (call("pong", {}), False, False),
    (GOOD[:-1], False, False),
]


@pytest.mark.parametrize(("text", "several", "one"), ONLY_CALLS)
def test_only_calls(text: str, several: bool, one: bool) -> None:
    assert matches(CallGrammar(HERMES, TOOLS, several=True).only_calls(), text) == several
    assert matches(CallGrammar(HERMES, TOOLS, several=False).only_calls(), text) == one


def test_number_of_calls_is_limited() -> None:
    grammar = CallGrammar(HERMES, TOOLS, several=True).only_calls()
    assert matches(grammar, "\n".join([OTHER] * MAX_TOOL_CALLS))
    assert not matches(grammar, "\n".join([OTHER] * (MAX_TOOL_CALLS + 1)))


IN_TEXT = [
    ("", True, True),
    ("Hello\n\n{} <tool 🔥 </tool_call>", True, True),
    (GOOD, True, True),
    (f"Well:\n{GOOD}", True, True),
    (f"{GOOD}\n{OTHER}", True, False),
    (f"a {GOOD} b {OTHER} c", True, False),
    (f"{GOOD}\nBye.", True, False),
    (f"Well: {WRONG}", False, False),
    (f"{GOOD}\n{WRONG}", False, False),
    ("The tag <tool_call> begins a call.", False, False),
    ("<tool_call>", False, False),
]


@pytest.mark.parametrize(("text", "several", "one"), IN_TEXT)
def test_calls_in_text(text: str, several: bool, one: bool) -> None:
    assert matches(CallGrammar(HERMES, TOOLS, several=True).calls_in_text(), text) == several
    assert matches(CallGrammar(HERMES, TOOLS, several=False).calls_in_text(), text) == one


@pytest.mark.parametrize(
    ("text", "any_object", "an_integer"),
    [
        ('{"a": [1]}', True, False),
        ("17", False, True),
        (GOOD, True, True),
        (f"{GOOD}\n{OTHER}", True, True),
        (WRONG, False, False),
        (f"17\n{GOOD}", False, False),
        ("Hello", False, False),
        ("", False, False),
    ],
)
def test_calls_or_json(text: str, any_object: bool, an_integer: bool) -> None:
    grammar = CallGrammar(HERMES, TOOLS, several=True)
    assert matches(grammar.calls_or_json(None), text) == any_object
    assert matches(grammar.calls_or_json('{"type": "integer"}'), text) == an_integer


@pytest.mark.parametrize(
    ("parameters", "good", "bad"),
    [
        (None, "{}", '{"a": 1}'),
        ("{}", "{}", '{"a": 1}'),
        ('{"type": "object"}', '{"a": 1}', "[1]"),
        ('{"type": "object", "properties": {}}', "{}", "1"),
        ('{"properties": {"a": {"type": "integer"}}}', '{"a": 1}', "1"),
        ('{"$defs": {"A": {"properties": {"b": {"const": 1}}, "required": ["b"]}}, "$ref": "#/$defs/A"}',
         '{"b": 1}', "{}"),
        ('{"anyOf": [{"type": "string"}, {"properties": {"a": {"type": "integer"}}}]}', '{"a": 1}', '"x"'),
        ('{"description": "a ::= b \\n start: \\" é", "type": "object"}', "{}", "null"),
    ],
)  # fmt: skip
def test_arguments_follow_the_tools_schema(parameters: str | None, good: str, bad: str) -> None:
    grammar = CallGrammar(HERMES, [Tool("f", parameters_json=parameters)], several=False).only_calls()
    assert matches(grammar, call("f", good))
    assert not matches(grammar, call("f", bad))


names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
syntax_texts = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=8)


@settings(max_examples=40)
@given(names, names, syntax_texts, syntax_texts, syntax_texts, st.text(alphabet="abc{\n", max_size=9))
def test_any_format_and_any_name(name: str, other: str, opening: str, middle: str, closing: str, text: str) -> None:
    syntax = CallSyntax(f"<{opening}", middle, f"={middle}", f"{closing}>", closing)
    grammar = CallGrammar(syntax, [Tool(name), Tool(f"{name}x")], several=True)
    made = call(name, {}, syntax)
    assert matches(grammar.only_calls(), made)
    assert matches(grammar.calls_in_text(), text + made)
    assert not matches(grammar.only_calls(), call(f"{name}y{other}", {}, syntax))
    assert not matches(grammar.calls_in_text(), text + call(f"{name}y{other}", {}, syntax))


def test_grammar_metacharacters_are_escaped() -> None:
    grammar = CallGrammar(AWKWARD, TOOLS, several=True)
    made = call("ping", {}, AWKWARD)
    assert matches(grammar.only_calls(), f"{made}{AWKWARD.separator}{made}")
    assert matches(grammar.calls_in_text(), f"[/tool\n\t..+] {made} /")
    assert not matches(grammar.calls_in_text(), f"{made[:-1]} /")


def test_128_tools() -> None:
    many = [replace(CITY, name=f"f{number}") for number in range(128)]
    grammar = CallGrammar(HERMES, many, several=False).only_calls()
    assert matches(grammar, call("f127", {"city": ""}))
    assert not matches(grammar, call("f128", {"city": ""}))


OPENING, CLOSING, OTHER_SPECIAL = 256, 257, 258
SPECIAL = replace(HERMES, special_tokens=(("<tool_call>", OPENING), ("</tool_call>", CLOSING)))


@lru_cache
def with_special_tokens() -> LLTokenizer:
    """A token for each byte, and three special tokens, two of them the tags."""
    spelled = {value: bytes([value]) for value in range(256)}
    special = {OPENING: b"<tool_call>", CLOSING: b"</tool_call>", OTHER_SPECIAL: b"<|x|>"}
    return vocabulary_of(TokenBytes.of(spelled | special, frozenset(special)), 259).compiled


def tokens(text: str, *, as_tags: bool) -> list[int]:
    """Tags as special tokens, or as bytes."""
    pieces = re.split("(</?tool_call>)", text)
    ids = {"<tool_call>": [OPENING], "</tool_call>": [CLOSING]} if as_tags else {}
    return [token_id for piece in pieces for token_id in ids.get(piece, list(piece.encode()))]


BARE = call("get_weather", {"city": "Paris"})


@pytest.mark.parametrize("text", [BARE, f"{BARE}\n{OTHER}"])
def test_special_token_tags_are_forced_as_tokens(text: str) -> None:
    grammar = CallGrammar(SPECIAL, TOOLS, several=True).only_calls()
    assert matches(grammar, tokens(text, as_tags=True), with_special_tokens())
    assert not matches(grammar, tokens(text, as_tags=False), with_special_tokens())


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("", True),
        ("Hello <tool", True),
        (BARE, True),
        (f"a\n{BARE} b {OTHER}", True),
        (WRONG, False),
        ("a <tool_call> b", False),
        ("<tool_call>", False),
    ],
)
def test_tags_in_text_open_a_call_as_tokens_or_text(text: str, is_good: bool) -> None:
    grammar = CallGrammar(SPECIAL, TOOLS, several=True).calls_in_text()
    assert matches(grammar, tokens(text, as_tags=True), with_special_tokens()) == is_good
    spelled = [
        each for token in tokens(text, as_tags=True) for each in (b"<tool_call>" if token == OPENING else [token])
    ]
    assert matches(grammar, spelled, with_special_tokens()) == is_good


def test_other_special_tokens_are_not_allowed() -> None:
    grammar = CallGrammar(SPECIAL, TOOLS, several=True).calls_in_text()
    assert not matches(grammar, [*b"a", OTHER_SPECIAL], with_special_tokens())
