"""The answer to one prompt: token ids as they come, and the text that the detokenizer makes of them."""

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
    """One continuation of a prompt. ``token_ids`` has the token that ended it, ``text`` has not.

    ``finish_reason`` is ``stop`` or ``length``. ``logprobs``, if asked for, has a dict for each token: the token's own
    log probability, then the best ones, best first, by token id.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    logprobs: NotRequired[list[dict[int, float]]]


class Output(Choice):
    """The first continuation; ``choices`` has all ``n`` of them, the first one too.

    ``prompt_logprobs``, if asked for, is for the prompt what ``logprobs`` is for a continuation; None for its first
    token, which follows nothing.
    """

    choices: list[Choice]
    prompt_logprobs: NotRequired[list[dict[int, float] | None]]


class Answer:
    """Collects what the engine says of one request."""

    def __init__(self, request: Request, stop: tuple[str, ...], text: Text, *, continues_prompt: bool = False) -> None:
        """``continues_prompt``: the text goes on with the prompt's. Raises ``InvalidRequest`` for a bad stop string."""
        params = request.sampling_params
        tail = request.prompt_token_ids if continues_prompt else ()
        self._choices = [
            _Choice(text.formatter(stop, min_tokens=params.min_tokens, prompt_tail=tail), has_stop=bool(stop))
            for _ in range(params.n)
        ]
        self._params = params
        self._prompt_logprobs: list[dict[int, float] | None] = [None]

    def hear(self, output: RequestOutput) -> Iterator[int]:
        """Take in what is new; yields the choices that have just reached a stop string and shall be stopped."""
        for new in output.choices:
            if new.prompt is not None:
                self._prompt_logprobs += _by_token_id(new.prompt.token_ids, new.prompt.logprobs)
            if self._choices[new.index].hear(new):
                yield new.index

    def result(self) -> Output:
        """Everything. The request must be over."""
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
    return [{token_id: one.logprob, **dict(one.top)} for token_id, one in zip(token_ids, logprobs, strict=True)]


class _Choice:
    """Without stop strings, the text is made once at the end, which costs a tenth."""

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

    def hear(self, new: ChoiceOutput) -> bool:
        """Whether a stop string is now complete."""
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
