"""From an output of the engine to its event."""

from __future__ import annotations

from engine_svc.output import ChoiceOutput, PromptLogprobs, RequestOutput, TokenLogprobs
from protos.v1 import common_pb2, engine_pb2


def to_event(output: RequestOutput) -> engine_pb2.GenerateEvent:
    """The event of an output that is not an error."""
    event = engine_pb2.GenerateEvent()
    for choice in output.choices:
        if choice.prompt is not None:
            event.input_logprobs.MergeFrom(_input_logprobs(choice.prompt))
        if choice.token_ids or choice.finish_reason is not None:
            _add_chunk(event, choice)
    if (head := output.head) is not None:
        event.prompt_tokens = head.num_prompt_tokens
        event.cached_tokens = head.num_cached_tokens
        event.seed = head.seed
    if (stats := output.stats) is not None:
        event.stats.queue_enter_at = stats.queue_enter_at
        event.stats.prefill_start_at = stats.prefill_start_at
        event.stats.first_token_at = stats.first_token_at
        event.stats.last_token_at = stats.last_token_at
        event.stats.preemptions = stats.num_preemptions
    return event


def _add_chunk(event: engine_pb2.GenerateEvent, choice: ChoiceOutput) -> None:
    chunk = event.chunks.add(index=choice.index, token_ids=choice.token_ids)
    if choice.logprobs:
        chunk.output_logprobs.CopyFrom(_logprobs(choice.token_ids, choice.logprobs))
    if choice.finish_reason is not None:
        chunk.finish_reason = choice.finish_reason
    if choice.matched_token_id is not None:
        chunk.matched_token_id = choice.matched_token_id


def _logprobs(token_ids: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...]) -> common_pb2.OutputLogProbs:
    return common_pb2.OutputLogProbs(
        token_logprobs=[entry.logprob for entry in logprobs],
        token_ids=token_ids,
        top_logprobs=map(_top_logprobs, logprobs),
    )


def _input_logprobs(prompt: PromptLogprobs) -> common_pb2.InputLogProbs:
    return common_pb2.InputLogProbs(
        token_logprobs=[entry.logprob for entry in prompt.logprobs],
        token_ids=prompt.token_ids,
        top_logprobs=map(_top_logprobs, prompt.logprobs),
    )


def _top_logprobs(entry: TokenLogprobs) -> common_pb2.TopLogProbs:
    return common_pb2.TopLogProbs(
        values=[value for _, value in entry.top], token_ids=[token_id for token_id, _ in entry.top]
    )
