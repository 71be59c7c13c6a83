from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.generation import request as chat
from gateway.generation.constraint import Thinking
from gateway.generation.model import Model
from gateway.generation.prompt import Prompt, ReasoningState, ReasoningTags
from gateway.replicas.describe import ParserChoice, build_model
from gateway.replicas.info import DetokenizerInfo, EngineInfo, TokenizerInfo
from svclib.errors import ContextLengthExceeded, InvalidRequest, Unavailable, Unsupported
from tests.gateway.generation.test_call_grammar import HERMES

TAGS = ReasoningTags((1,), (2, 3))
TOKENIZER = TokenizerInfo(
    "v1", template_supports_tools=True, template_supports_thinking=True, tool_parser="hermes", reasoning_parser="think",
    reasoning_tags=(("think", TAGS), ("strange", ReasoningTags((4,), (5,)))),
)  # fmt: skip
ENGINE = EngineInfo(
    "/models/x", "float32", max_context_length=100, vocab_size=50, simulated=False, supports_constraints=True
)
DETOKENIZER = DetokenizerInfo(frozenset({"hermes", "other"}), frozenset({"think"}), (("hermes", HERMES),))
NAMES = chat.FieldNames(prompt="messages", logprobs="top_logprobs")
AUTO = ParserChoice("auto", "auto")


def model(**changes: Any) -> Model:
    return replace(build_model(TOKENIZER, ENGINE, DETOKENIZER, AUTO), **changes)


def request(**fields: Any) -> chat.GenerationRequest:
    given: dict[str, Any] = {"sampling": chat.Sampling(), "names": NAMES} | fields
    return chat.GenerationRequest("m", chat.Conversation((chat.Message("user", "hi"),)), **given)


TOOLS = (chat.Tool("f"),)


def test_parsers_are_detected_from_the_template() -> None:
    found = model()
    assert (found.tool_parser, found.reasoning_parser, found.tools_unsupported_reason) == ("hermes", "think", "")


def test_parsers_can_be_switched_off() -> None:
    found = build_model(TOKENIZER, ENGINE, DETOKENIZER, ParserChoice("none", "none"))
    assert (found.tool_parser, found.reasoning_parser) == ("", "")
    assert "GATEWAY_TOOL_PARSER" in found.tools_unsupported_reason


def test_parsers_can_be_named() -> None:
    assert build_model(TOKENIZER, ENGINE, DETOKENIZER, ParserChoice("other", "auto")).tool_parser == "other"


@pytest.mark.parametrize(
    ("parsers", "name"),
    [(ParserChoice("nope", "auto"), "GATEWAY_TOOL_PARSER"), (ParserChoice("auto", "nope"), "GATEWAY_REASONING_PARSER")],
)
def test_unsupported_parser_is_unavailable(parsers: ParserChoice, name: str) -> None:
    with pytest.raises(Unavailable, match=name) as caught:
        build_model(TOKENIZER, ENGINE, DETOKENIZER, parsers)
    assert "nope" in caught.value.message


def test_unsupported_reasoning_format_is_a_warning() -> None:
    unread = replace(TOKENIZER, reasoning_parser="gemma4")
    (warning,) = build_model(unread, ENGINE, DETOKENIZER, AUTO).warnings
    for word in ("gemma4", "content", "think", "GATEWAY_REASONING_PARSER"):
        assert word in warning
    for parser in ("none", "think"):
        assert build_model(unread, ENGINE, DETOKENIZER, ParserChoice("auto", parser)).warnings == ()
    for known in (TOKENIZER, replace(TOKENIZER, reasoning_parser="")):
        assert build_model(known, ENGINE, DETOKENIZER, AUTO).warnings == ()


@pytest.mark.parametrize(
    ("tokenizer", "reason"),
    [
        (replace(TOKENIZER, template_supports_tools=False), "template"),
        (replace(TOKENIZER, tool_parser="strange"), "strange"),
        (replace(TOKENIZER, tool_parser=""), "not recognised"),
    ],
)
def test_unsupported_tools(tokenizer: TokenizerInfo, reason: str) -> None:
    found = build_model(tokenizer, ENGINE, DETOKENIZER, AUTO)
    with pytest.raises(Unsupported, match=reason) as caught:
        found.check(request(tools=TOOLS))
    assert caught.value.param == "tools"
    found.check(request())


def test_scripts_need_the_simulated_model() -> None:
    with pytest.raises(Unsupported) as caught:
        model().check(request(script=chat.Script(())))
    assert caught.value.param == "simulate"
    model(simulated=True).check(request(script=chat.Script(())))


def test_token_ids_at_the_limit_and_one_above() -> None:
    model().check(request(sampling=chat.Sampling(stop_token_ids=(49,), logit_bias={49: 1.0})))
    for sampling, param in (
        (chat.Sampling(stop_token_ids=(1, 50)), "stop_token_ids"),
        (chat.Sampling(logit_bias={50: 1.0}), "logit_bias"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            model().check(request(sampling=sampling))
        assert caught.value.param == param


def test_prompt_must_leave_room_for_one_token() -> None:
    model().check_length(request(), 99)
    for length in (100, 101, 10**6):
        with pytest.raises(ContextLengthExceeded) as caught:
            model().check_length(request(), length)
        assert caught.value.param == "messages"
        assert str(length) in caught.value.message


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_prompt_and_max_tokens_must_fit(name: str) -> None:
    model().check_length(request(sampling=chat.Sampling(max_tokens=40), names=chat.FieldNames(max_tokens=name)), 60)
    with pytest.raises(InvalidRequest) as caught:
        model().check_length(request(sampling=chat.Sampling(max_tokens=41), names=chat.FieldNames(max_tokens=name)), 60)
    assert caught.value.param == name
    assert not isinstance(caught.value, ContextLengthExceeded)
    for number in ("41", "60", "100"):
        assert number in caught.value.message


def test_fingerprint_depends_on_weights_dtypes_and_template() -> None:
    engines = (
        ENGINE,
        replace(ENGINE, model_path="/models/y"),
        replace(ENGINE, dtype="bfloat16"),
        replace(ENGINE, kv_cache_dtype="int8"),
    )
    prints = {
        build_model(tokenizer, engine, DETOKENIZER, AUTO).fingerprint
        for tokenizer in (TOKENIZER, replace(TOKENIZER, template_version="v2"))
        for engine in engines
    }
    assert len(prints) == 8
    assert model().fingerprint == build_model(TOKENIZER, ENGINE, DETOKENIZER, AUTO).fingerprint


@pytest.mark.parametrize(
    ("template_supports_thinking", "said", "means"),
    [
        (True, ReasoningState.CLOSED, ReasoningState.CLOSED),
        (False, ReasoningState.CLOSED, ReasoningState.UNDECIDED),
        (False, ReasoningState.OPEN, ReasoningState.OPEN),
        (False, ReasoningState.UNDECIDED, ReasoningState.UNDECIDED),
    ],
)
def test_closed_needs_a_template_with_thinking(
    template_supports_thinking: bool, said: ReasoningState, means: ReasoningState
) -> None:
    prompt = Prompt([1], [2], said, "v1", 0.0, 0.0, ())
    assert model(template_supports_thinking=template_supports_thinking).reasoning_state(prompt) is means


@pytest.mark.parametrize("state", ReasoningState)
def test_closed_is_undecided_without_thinking_support(state: ReasoningState) -> None:
    prompt = Prompt([1], [], state, "v1", 0.0, 0.0, [])
    assert model().reasoning_state(prompt) is state
    unknowing = model(template_supports_thinking=False).reasoning_state(prompt)
    assert unknowing is (ReasoningState.UNDECIDED if state is ReasoningState.CLOSED else state)


def test_embedding_model_does_not_generate() -> None:
    embedding = build_model(TOKENIZER, replace(ENGINE, generates=False), DETOKENIZER, AUTO)

    with pytest.raises(Unsupported, match="embedding model") as caught:
        embedding.check(request())
    assert caught.value.param == "model"
    assert model().generates


@pytest.mark.parametrize(
    ("state", "template_supports_thinking", "left_free"),
    [
        (ReasoningState.OPEN, True, ReasoningState.OPEN),
        (ReasoningState.UNDECIDED, True, ReasoningState.UNDECIDED),
        (ReasoningState.CLOSED, True, None),
        (ReasoningState.CLOSED, False, ReasoningState.UNDECIDED),
    ],
)
def test_reasoning_before_the_constraint(
    state: ReasoningState, template_supports_thinking: bool, left_free: ReasoningState | None
) -> None:
    prompt = Prompt([1], [], state, "v1", 0.0, 0.0, [])
    expected = None if left_free is None else Thinking(left_free, TAGS)
    assert model(template_supports_thinking=template_supports_thinking).thinking(prompt) == expected
    without = build_model(
        replace(TOKENIZER, template_supports_thinking=template_supports_thinking),
        ENGINE,
        DETOKENIZER,
        ParserChoice("auto", "none"),
    )
    assert without.thinking(prompt) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"supports_constraints": False}, "engine"),
        ({"call_syntax": None}, "hermes"),
        ({"reasoning_tags": None}, "think"),
    ],
)
def test_unsupported_forced_calls(changes: dict[str, Any], reason: str) -> None:
    forced = request(tools=TOOLS, tool_choice=chat.ToolChoice("required"))
    model().check(forced)
    model(**changes).check(request(tools=TOOLS))
    with pytest.raises(Unsupported, match=reason) as caught:
        model(**changes).check(forced)
    assert caught.value.param == "tool_choice"


def test_response_format_needs_no_call_syntax() -> None:
    formatted = request(response_format=chat.JsonFormat())
    model(call_syntax=None).check(formatted)
    model(reasoning_tags=None, reasoning_parser="").check(formatted)
    with pytest.raises(Unsupported) as caught:
        model(supports_constraints=False).check(formatted)
    assert caught.value.param == "response_format"


@pytest.mark.parametrize(
    ("ids", "texts", "logits", "told"),
    [
        (50, 50, 50, ""),
        (49, 49, 50, ""),
        (0, 0, 50, ""),
        (49, 50, 50, "the tokenizer has 49 token ids and the detokenizer has 50"),
        (51, 51, 50, "the tokenizer has 51 token ids and the engine has 50"),
        (0, 51, 50, "the detokenizer has 51 token ids and the engine has 50"),
    ],
)
def test_vocabulary_sizes_must_agree(ids: int, texts: int, logits: int, told: str) -> None:
    peers = (
        replace(TOKENIZER, vocab_size=ids),
        replace(ENGINE, vocab_size=logits),
        replace(DETOKENIZER, vocab_size=texts),
    )
    if not told:
        assert build_model(*peers, AUTO).vocab_size == logits
        return
    with pytest.raises(Unavailable, match=told) as caught:
        build_model(*peers, AUTO)
    assert "different models" in caught.value.message


@pytest.mark.parametrize(
    ("hashes", "told"),
    [
        (("a", "a", "a"), ""),
        (("", "", ""), ""),
        (("a", "", "a"), ""),
        (("", "a", ""), ""),
        (("a", "b", "a"), "tokenizer a, engine b, detokenizer a"),
        (("a", "", "b"), "tokenizer a, detokenizer b"),
        (("", "b", "a"), "engine b, detokenizer a"),
    ],
)
def test_known_vocabulary_hashes_must_be_equal(hashes: tuple[str, str, str], told: str) -> None:
    peers = (
        replace(TOKENIZER, vocabulary_hash=hashes[0]),
        replace(ENGINE, vocabulary_hash=hashes[1]),
        replace(DETOKENIZER, vocabulary_hash=hashes[2]),
    )
    if not told:
        assert build_model(*peers, AUTO)
        return
    with pytest.raises(Unavailable, match=f"different vocabularies .hashes: {told}.; they were started"):
        build_model(*peers, AUTO)
