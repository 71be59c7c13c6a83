"""Sampling parameters for programs: with defaults, and validated on construction."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Final, get_args

from engine_svc import request
from engine_svc.constraint import Constraint, ConstraintKind
from engine_svc.validation import check_sampling
from svclib.errors import InvalidRequest, ServiceError

_ANY_LENGTH: Final = 2**32 - 1
_ANY_VOCABULARY: Final = 2**32
_SEED_BITS: Final = 64
_CONSTRAINTS: Final = get_args(ConstraintKind)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """For one prompt, or for all prompts of a call. Raises ``ValueError`` naming a field that is out of range.

    ``temperature`` 0 or ``top_p`` 0 is greedy; ``top_k`` 0 or -1 keeps all tokens. ``max_tokens`` None takes the rest
    of the context. ``stop`` is a string or several, before which the text ends; ``stop_token_ids`` end it like
    end-of-sequence tokens. ``n`` is the number of choices for a prompt. ``logprobs`` requests log probabilities, with
    this many alternatives for each token, and ``prompt_logprobs`` those of the prompt. The same ``seed`` gives the same
    tokens in any batch; without one they differ each time. One of ``json_object``, ``json_schema`` (a string or a
    dict), ``regex``, ``choice`` and ``grammar`` (Lark or GBNF) constrains the whole output, from its first token.
    """

    temperature: float = 1.0
    max_tokens: int | None = 64
    ignore_eos: bool = False
    _: KW_ONLY
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    stop: str | SequenceOf[str] | None = None
    stop_token_ids: Iterable[int] | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    seed: int | None = None
    logit_bias: Mapping[int, float] | None = None
    json_object: bool = False
    json_schema: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: SequenceOf[str] | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        try:
            check_sampling(self.resolve(_ANY_LENGTH), _ANY_VOCABULARY)
        except InvalidRequest as error:
            raise ValueError(message_of(error)) from None
        if any(not isinstance(string, str) or not string for string in self.stop_strings):
            raise ValueError(f"stop must be a non-empty string or several, not {self.stop!r}")

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def constraint(self) -> Constraint | None:
        """The constraint of the output. Raises ``ValueError`` if more than one is given, or an invalid one."""
        given = [name for name in _CONSTRAINTS if getattr(self, name) not in (None, False)]
        if not given:
            return None
        if len(given) > 1:
            raise ValueError(f"only one constraint is allowed, not {' and '.join(given)}")
        return _constraint(given[0], getattr(self, given[0]))

    def resolve(self, rest: int) -> request.SamplingParams:
        """The engine's parameters, where ``rest`` is the number of tokens that fit. Draws the seed if there is none.

        Raises ``ValueError`` for values of the wrong type; ranges are not checked.
        """
        return request.SamplingParams(
            temperature=_number("temperature", self.temperature),
            top_p=_number("top_p", self.top_p),
            top_k=0 if self.top_k == -1 else _integer("top_k", self.top_k),
            min_p=_number("min_p", self.min_p),
            frequency_penalty=_number("frequency_penalty", self.frequency_penalty),
            presence_penalty=_number("presence_penalty", self.presence_penalty),
            repetition_penalty=_number("repetition_penalty", self.repetition_penalty),
            max_tokens=rest if self.max_tokens is None else _integer("max_tokens", self.max_tokens),
            min_tokens=_integer("min_tokens", self.min_tokens),
            stop_token_ids=frozenset(_integer("stop_token_ids", token_id) for token_id in self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
            n=_integer("n", self.n),
            logprobs=None if self.logprobs is None else _integer("logprobs", self.logprobs),
            prompt_logprobs=(
                None if self.prompt_logprobs is None else _integer("prompt_logprobs", self.prompt_logprobs)
            ),
            seed=secrets.randbits(_SEED_BITS) if self.seed is None else _integer("seed", self.seed, 2**_SEED_BITS),
            logit_bias=tuple(
                (_integer("logit_bias", token_id), _number("logit_bias", bias))
                for token_id, bias in (self.logit_bias or {}).items()
            ),
            constraint=self.constraint,
        )


def message_of(error: ServiceError) -> str:
    """The message of an error, with its field."""
    names_it = error.param is None or error.param in error.message
    return error.message if names_it else f"{error.param}: {error.message}"


def _constraint(kind: ConstraintKind, value: Any) -> Constraint:
    match kind, value:
        case "json_object", True:
            return Constraint(kind)
        case "json_schema", Mapping():
            return Constraint(kind, json.dumps(value))
        case "json_schema" | "regex" | "grammar", str():
            return Constraint(kind, value)
        case "choice", list() | tuple() if all(isinstance(text, str) for text in value):
            return Constraint(kind, choices=tuple(value))
    raise ValueError(f"{kind} must not be {value!r}")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, not {value!r}")
    return float(value)


def _integer(name: str, value: Any, end: int = 2**32) -> int:
    """An integer of at least 0 and below ``end``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be an integer, not {value!r}")
    number = int(value)
    if not 0 <= number < end:
        raise ValueError(f"{name} must be at least 0 and below {end}, not {number}")
    return number
