"""From the message of a request to the request, with defaults applied and validated."""

from __future__ import annotations

import secrets
import time
from typing import Final

from engine_svc.constraint import Constraint, Thinking
from engine_svc.request import FinishReason, Request, SamplingParams, Script
from engine_svc.runners.interface import RunnerInfo
from engine_svc.scheduling.capacity import Capacity
from engine_svc.validation import (
    MAX_SCRIPT_BYTES,
    check_choice_index,
    check_end_tokens,
    check_prompt,
    check_resumed,
    check_sampling,
    check_script,
    check_thinking,
)
from protos.v1 import common_pb2, engine_pb2
from svclib.errors import InvalidRequest, Unsupported

_DRAWN_SEED_BITS: Final = 53
"""A client that reads JSON numbers as doubles can send such a seed back unchanged."""


def read_request(message: engine_pb2.GenerateRequest, info: RunnerInfo, capacity: Capacity) -> Request:
    """Read and validate a message. Raises ``InvalidRequest`` naming the invalid field."""
    max_requested = message.sampling_params.max_tokens if message.sampling_params.HasField("max_tokens") else None
    max_tokens = capacity.max_tokens(len(message.input_ids), max_requested)
    prompt = tuple(message.input_ids)
    check_prompt(prompt, info.vocab_size)
    params = _read_sampling(message.sampling_params, max_tokens)
    check_sampling(params, info.vocab_size)
    output = tuple(message.output_ids)
    check_resumed(output, params, info.vocab_size)
    check_choice_index(message.choice_index, params)
    eos_token_ids = frozenset(message.eos_token_ids or info.eos_token_ids)
    check_end_tokens(eos_token_ids, info.vocab_size, param="eos_token_ids")
    return Request(
        request_id=message.request_id,
        prompt_token_ids=prompt,
        sampling_params=params,
        eos_token_ids=eos_token_ids,
        script=_read_script(message.simulate, info) if message.HasField("simulate") else None,
        arrived_at=time.time(),
        open_ended=max_requested is None,
        thinking=_read_thinking(message, info.vocab_size) if params.constraint is not None else None,
        output_token_ids=output,
        choice_index=message.choice_index,
    )


def _read_sampling(message: engine_pb2.SamplingParams, max_tokens: int) -> SamplingParams:
    """Apply the defaults documented in the proto; every present value is kept, zero too."""
    has = message.HasField
    return SamplingParams(
        temperature=message.temperature if has("temperature") else 1.0,
        top_p=message.top_p if has("top_p") else 1.0,
        top_k=message.top_k if has("top_k") and message.top_k != -1 else 0,
        min_p=message.min_p if has("min_p") else 0.0,
        frequency_penalty=message.frequency_penalty if has("frequency_penalty") else 0.0,
        presence_penalty=message.presence_penalty if has("presence_penalty") else 0.0,
        repetition_penalty=message.repetition_penalty if has("repetition_penalty") else 1.0,
        max_tokens=max_tokens,
        min_tokens=message.min_tokens if has("min_tokens") else 0,
        stop_token_ids=frozenset(message.stop_token_ids),
        ignore_eos=message.ignore_eos if has("ignore_eos") else False,
        n=message.n if has("n") else 1,
        logprobs=message.logprobs if has("logprobs") else None,
        prompt_logprobs=message.prompt_logprobs if has("prompt_logprobs") else None,
        seed=message.seed if has("seed") else secrets.randbits(_DRAWN_SEED_BITS),
        logit_bias=tuple(message.logit_bias.items()),
        constraint=_read_constraint(message),
    )


def _read_constraint(message: engine_pb2.SamplingParams) -> Constraint | None:
    match kind := message.WhichOneof("constraint"):
        case "json_object":
            return Constraint("json_object") if message.json_object else None
        case "choice":
            return Constraint("choice", choices=tuple(message.choice.choices))
        case "json_schema" | "regex" | "grammar":
            return Constraint(kind, text=getattr(message, kind))
    return None


def _read_thinking(message: engine_pb2.GenerateRequest, vocab_size: int) -> Thinking | None:
    """None when the constraint applies from the first token."""
    if message.reasoning_state not in (common_pb2.REASONING_STATE_OPEN, common_pb2.REASONING_STATE_UNDECIDED):
        return None
    is_open = message.reasoning_state == common_pb2.REASONING_STATE_OPEN
    thinking = Thinking(is_open, tuple(message.reasoning_start_token_ids), tuple(message.reasoning_end_token_ids))
    check_thinking(thinking, vocab_size)
    return thinking


def _read_script(message: engine_pb2.SimulatedScript, info: RunnerInfo) -> Script:
    if not info.simulated:
        raise Unsupported("simulate is supported by the simulated model only", param="simulate")
    if message.ByteSize() > MAX_SCRIPT_BYTES:
        raise InvalidRequest(
            f"a script must have at most {MAX_SCRIPT_BYTES} bytes, not {message.ByteSize()}", param="simulate"
        )
    script = Script(
        steps=tuple(tuple(step.token_ids) for step in message.steps),
        repeat=message.repeat if message.HasField("repeat") else 1,
        delay=message.delay_ms / 1000.0 if message.HasField("delay_ms") else 0.0,
        finish=_read_finish(message.finish) if message.HasField("finish") else "stop",
    )
    check_script(script, info.vocab_size)
    return script


def _read_finish(text: str) -> FinishReason:
    match text:
        case "stop" | "length":
            return text
    raise InvalidRequest("finish must be `stop` or `length`", param="simulate.finish")
