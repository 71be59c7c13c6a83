"""What is known of one prompt's answer: token ids as they come, text once they are all there."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import NotRequired, TypedDict, cast

from engine_svc.offline.stop_search import StopSearch
from engine_svc.offline.text import Text
from engine_svc.output import RequestOutput
from engine_svc.request import ChoiceOutput, FinishReason, Request, TokenLogprobs


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

    def __init__(self, request: Request, stop: tuple[str, ...], text: Text) -> None:
        params = request.sampling_params
        self._choices = [_Choice(StopSearch(stop, params.min_tokens, text) if stop else None) for _ in range(params.n)]
        self._text = text
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
            "text": choice.text(self._text),
            "token_ids": choice.token_ids,
            "finish_reason": choice.finish_reason,
        }
        if self._params.logprobs is not None:
            result["logprobs"] = _by_token_id(choice.token_ids, choice.logprobs)
        return result


def _by_token_id(token_ids: SequenceOf[int], logprobs: SequenceOf[TokenLogprobs]) -> list[dict[int, float]]:
    return [{token_id: one.logprob, **dict(one.top)} for token_id, one in zip(token_ids, logprobs, strict=True)]


class _Choice:
    def __init__(self, search: StopSearch | None) -> None:
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: FinishReason | None = None
        self._search = search
        self._ended_by_token = False

    def hear(self, new: ChoiceOutput) -> bool:
        """Whether a stop string is now complete."""
        num_known = len(self.token_ids)
        self.token_ids += new.token_ids
        self.logprobs += new.logprobs
        self.finish_reason = new.finish_reason
        self._ended_by_token = new.matched_token_id is not None
        num_needed = self._search.feed(new.token_ids) if self._search is not None else None
        if num_needed is None:
            return False
        del self.token_ids[num_known + num_needed :], self.logprobs[num_known + num_needed :]
        self.finish_reason = "stop"
        return True

    def text(self, text: Text) -> str:
        if self._search is not None and self._search.matched:
            return self._search.text
        return text.decode(self.token_ids[:-1] if self._ended_by_token else self.token_ids)
