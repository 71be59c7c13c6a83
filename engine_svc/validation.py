"""The limits of a request: a table of ranges, and the checks beyond ranges.

The gateway has checked all this, with better messages; the engine checks again because its step loop is shared.
``param`` names fields as the public API spells them.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from struct import pack, unpack
from typing import Final

from engine_svc.constraint import Thinking
from engine_svc.request import SamplingParams, Script
from svclib.errors import InvalidRequest

MAX_CHOICES: Final = 128
MAX_LOGPROBS: Final = 20
MAX_END_TOKENS: Final = 128
MAX_LOGIT_BIASES: Final = 1024
MAX_TAG_TOKENS: Final = 64
MAX_SCRIPT_BYTES: Final = 256 * 1024
MAX_SCRIPT_STEPS: Final = 1_000_000
MAX_SCRIPT_DELAY: Final = 600.0

_MIN_REPETITION_PENALTY: Final = unpack("f", pack("f", 0.01))[0]
"""0.01 in single precision, as it arrives over gRPC; slightly less than 0.01."""

_RANGES: Final[tuple[tuple[str, float, float], ...]] = (
    ("temperature", 0.0, 2.0),
    ("top_p", 0.0, 1.0),
    ("top_k", -1, 2**31 - 1),
    ("min_p", 0.0, 1.0),
    ("frequency_penalty", -2.0, 2.0),
    ("presence_penalty", -2.0, 2.0),
    ("repetition_penalty", _MIN_REPETITION_PENALTY, 10.0),
    ("max_tokens", 1, 2**32 - 1),
    ("n", 1, MAX_CHOICES),
)
"""Field, minimum and maximum. No comparison holds for NaN, so it is always refused."""


def check_prompt(token_ids: tuple[int, ...], vocab_size: int) -> None:
    """Raises ``InvalidRequest`` for an empty prompt or ids outside the vocabulary."""
    if not token_ids:
        raise InvalidRequest("the prompt is empty", param="prompt")
    check_token_ids(token_ids, vocab_size, param="prompt")


def check_token_ids(token_ids: Iterable[int], vocab_size: int, *, param: str) -> None:
    """Raises ``InvalidRequest`` for ids outside the vocabulary."""
    largest = max(token_ids, default=0)
    if largest >= vocab_size:
        raise InvalidRequest(f"token id {largest} is outside the vocabulary of {vocab_size}", param=param)


def check_sampling(params: SamplingParams, vocab_size: int) -> None:
    """Raises ``InvalidRequest`` naming the first field that is out of bounds."""
    for name, minimum, maximum in _RANGES:
        value = attrgetter(name)(params)
        if not minimum <= value <= maximum:
            raise InvalidRequest(f"{name} must be between {minimum:g} and {maximum}, not {value}", param=name)
    if params.min_tokens > params.max_tokens:
        raise InvalidRequest(
            f"min_tokens must be at most max_tokens ({params.max_tokens}), not {params.min_tokens}", param="min_tokens"
        )
    for name, count in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
        if count is not None and count > MAX_LOGPROBS:
            raise InvalidRequest(f"{name} must be at most {MAX_LOGPROBS}, not {count}", param=name)
    check_end_tokens(params.stop_token_ids, vocab_size, param="stop_token_ids")
    _check_logit_bias(params, vocab_size)


def check_resumed(output_ids: tuple[int, ...], params: SamplingParams, vocab_size: int) -> None:
    """Raises ``InvalidRequest`` for output that the request cannot be resumed after."""
    if not output_ids:
        return
    if params.n != 1:
        raise InvalidRequest(f"n must be 1 to resume after output_ids, not {params.n}", param="n")
    if len(output_ids) >= params.max_tokens:
        raise InvalidRequest(
            f"max_tokens must be more than the {len(output_ids)} output_ids, not {params.max_tokens}",
            param="max_tokens",
        )
    check_token_ids(output_ids, vocab_size, param="output_ids")


def check_choice_index(index: int, params: SamplingParams) -> None:
    """Raises ``InvalidRequest`` for an index out of range, and for several choices that do not start at 0."""
    if index and params.n != 1:
        raise InvalidRequest(f"n must be 1 with a choice_index, not {params.n}", param="choice_index")
    if index >= MAX_CHOICES:
        raise InvalidRequest(f"choice_index must be below {MAX_CHOICES}, not {index}", param="choice_index")


def check_end_tokens(token_ids: frozenset[int], vocab_size: int, *, param: str) -> None:
    """Raises ``InvalidRequest`` for too many ids or ids outside the vocabulary."""
    if len(token_ids) > MAX_END_TOKENS:
        raise InvalidRequest(f"{param} must have at most {MAX_END_TOKENS} ids, not {len(token_ids)}", param=param)
    check_token_ids(token_ids, vocab_size, param=param)


def check_script(script: Script, vocab_size: int) -> None:
    """Raises ``InvalidRequest`` for a script that is too long or too slow, or has ids outside the vocabulary."""
    if len(script.steps) * script.repeat > MAX_SCRIPT_STEPS:
        raise InvalidRequest(
            f"a script must have at most {MAX_SCRIPT_STEPS} steps, repetitions included", param="simulate"
        )
    if not 0.0 <= script.delay <= MAX_SCRIPT_DELAY:
        raise InvalidRequest(f"delay_ms must be between 0 and {MAX_SCRIPT_DELAY * 1000:.0f}", param="simulate.delay_ms")
    for step in script.steps:
        check_token_ids(step, vocab_size, param="simulate.steps")


def check_thinking(thinking: Thinking, vocab_size: int) -> None:
    """Raises ``InvalidRequest`` for tags that are missing or too long, or have ids outside the vocabulary."""
    tags = {"reasoning_end_token_ids": thinking.end_token_ids}
    if not thinking.is_open:
        tags["reasoning_start_token_ids"] = thinking.start_token_ids
    for param, token_ids in tags.items():
        if not 1 <= len(token_ids) <= MAX_TAG_TOKENS:
            raise InvalidRequest(f"{param} must have 1 to {MAX_TAG_TOKENS} ids, not {len(token_ids)}", param=param)
        check_token_ids(token_ids, vocab_size, param=param)


def _check_logit_bias(params: SamplingParams, vocab_size: int) -> None:
    if len(params.logit_bias) > MAX_LOGIT_BIASES:
        raise InvalidRequest(
            f"logit_bias must have at most {MAX_LOGIT_BIASES} entries, not {len(params.logit_bias)}", param="logit_bias"
        )
    for token_id, bias in params.logit_bias:
        if not -100.0 <= bias <= 100.0:
            raise InvalidRequest(f"logit_bias values must be between -100 and 100, not {bias}", param="logit_bias")
        check_token_ids((token_id,), vocab_size, param="logit_bias")
