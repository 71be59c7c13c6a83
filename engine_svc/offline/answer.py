"""The output for one prompt: token ids as they are generated, and their text by the detokenizer's code."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import NotRequired, TypedDict, cast

from detokenizer_svc.deltas import Content
from detokenizer_svc.formatter import EngineEnd, Formatter
from engine_svc.offline.text import Text
from engine_svc.output import ChoiceOutput, RequestOutput, TokenLogprobs
from engine_svc.request import FinishReason, Request


class Choice(TypedDict):
    """One completion of a prompt. ``token_ids`` includes the token that ended it, ``text`` does not.

    ``finish_reason`` is ``stop`` or ``length``. ``logprobs``, if requested, has a dict for each token: the token's own
    log probability, then the top ones, best first, by token id.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    logprobs: NotRequired[list[dict[int, float]]]


class Output(Choice):
    """The first choice; ``choices`` has all ``n`` of them, the first included.

    ``prompt_logprobs``, if requested, is for the prompt what ``logprobs`` is for a choice; None for its first token.
    """

    choices: list[Choice]
    prompt_logprobs: NotRequired[list[dict[int, float] | None]]


class Answer:
    """Collects the engine's outputs for one request."""

    def __init__(self, request: Request, stop: tuple[str, ...], text: Text, *, continues_prompt: bool = False) -> None:
        """``continues_prompt``: the text continues the prompt's. Raises ``InvalidRequest`` for a bad stop string."""
        params = request.sampling_params
        tail = request.prompt_token_ids if continues_prompt else ()
        self._choices = [
            _Choice(text.formatter(stop, min_tokens=params.min_tokens, prompt_tail=tail), has_stop=bool(stop))
            for _ in range(params.n)
        ]
        self._params = params
        self._prompt_logprobs: list[dict[int, float] | None] = [None]

    def add(self, output: RequestOutput) -> Iterator[int]:
        """Add an output; yields the indices of choices that just reached a stop string and are to be stopped."""
        for new in output.choices:
            if new.prompt is not None:
                self._prompt_logprobs += _by_token_id(new.prompt.token_ids, new.prompt.logprobs)
            if self._choices[new.index].add(new):
                yield new.index

    def result(self) -> Output:
        """The whole output. The request must have finished."""
        choices = [self._result(choice) for choice in self._choices]
        output = cast("Output", {**choices[0], "choices": choices})
        if self._params.prompt_logprobs is not None:
            output["prompt_logprobs"] = self._prompt_logprobs
        return output

    def _result(self, choice: _Choice) -> Choice:
        assert choice.finish_reason is not None
        result: Choice = {
            "text": choice.text,
            "token_ids": choice.token_ids,
            "finish_reason": choice.finish_reason,
        }
        if self._params.logprobs is not None:
            result["logprobs"] = _by_token_id(choice.token_ids, choice.logprobs)
        return result


def _by_token_id(token_ids: SequenceOf[int], logprobs: SequenceOf[TokenLogprobs]) -> list[dict[int, float]]:
    return [{token_id: entry.logprob, **dict(entry.top)} for token_id, entry in zip(token_ids, logprobs, strict=True)]


class _Choice:
    """Without stop strings, the text is formatted once at the end, at a tenth of the cost."""

    def __init__(self, formatter: Formatter, *, has_stop: bool) -> None:
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: FinishReason | None = None
        self._formatter = formatter
        self._has_stop = has_stop
        self._pieces: list[str] = []
        self._num_formatted = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, new: ChoiceOutput) -> bool:
        """Add new tokens; returns whether a stop string is complete."""
        if self.finish_reason is not None:
            return False
        self.token_ids += new.token_ids
        self.logprobs += new.logprobs
        self.finish_reason = new.finish_reason
        if not self._has_stop and new.finish_reason is None:
            return False
        return self._format(None if new.finish_reason is None else _end(new, new.finish_reason))

    def _format(self, end: EngineEnd | None) -> bool:
        formatted = self._formatter.feed(self.token_ids[self._num_formatted :], end)
        self._pieces += [delta.text for delta in formatted.deltas if isinstance(delta, Content)]
        self._num_formatted += formatted.num_tokens
        if formatted.ending is None or formatted.ending.matched_stop is None:
            return False
        del self.token_ids[self._num_formatted :], self.logprobs[self._num_formatted :]
        self.finish_reason = "stop"
        return True


def _end(new: ChoiceOutput, reason: FinishReason) -> EngineEnd:
    return EngineEnd(reason, by_token=new.matched_token_id is not None)
