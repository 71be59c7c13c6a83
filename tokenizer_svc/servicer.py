"""The gRPC service of tokenizer.proto."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from protos.v1 import tokenizer_pb2 as pb
from protos.v1 import tokenizer_pb2_grpc as pb_grpc
from svclib.errors import ContextLengthExceeded, Unavailable
from svclib.server import unary
from tokenizer_svc.conversation import Conversation
from tokenizer_svc.messages import REASONING_STATES, read_conversation, read_inputs, to_capabilities
from tokenizer_svc.metrics import TokenizerMetrics
from tokenizer_svc.pool import Pool
from tokenizer_svc.prompt_tokenizer import PromptTokenizer, TokenizedPrompt


class TokenizerServicer(pb_grpc.TokenizerServicer):
    """Serves one tokenizer, which ``use`` sets before the first call."""

    def __init__(self, pool: Pool, metrics: TokenizerMetrics, max_chars: int) -> None:
        self._pool = pool
        self._metrics = metrics
        self._max_chars = max_chars
        self._loaded: PromptTokenizer | None = None

    def use(self, tokenizer: PromptTokenizer) -> None:
        """Serve this tokenizer from now on."""
        self._loaded = tokenizer

    @unary
    async def Render(self, request: pb.RenderRequest, _context: Any) -> pb.RenderResponse:
        with self._metrics.counting_rejections():
            conversation, inputs = read_conversation(request), read_inputs(request)
            size = conversation.num_chars
            self._check_size(size, "messages")
            self._check_size(sum(map(len, inputs)), "inputs")
            work = partial(self._render, conversation, inputs)
            prompt, outputs = await self._pool.run(work, size + sum(map(len, inputs)))
        self._metrics.observe(prompt)
        return pb.RenderResponse(
            token_ids=prompt.token_ids,
            text=prompt.text,
            eos_token_ids=self._tokenizer.eos_token_ids,
            reasoning_state=REASONING_STATES[prompt.reasoning_state],
            template_version=prompt.template_version,
            rendered_at=prompt.rendered_at,
            tokenized_at=prompt.tokenized_at,
            ignored_template_kwargs=prompt.ignored_kwargs,
            outputs=[pb.TokenList(token_ids=ids) for ids in outputs],
        )

    @unary
    async def Tokenize(self, request: pb.TokenizeRequest, _context: Any) -> pb.TokenizeResponse:
        with self._metrics.counting_rejections():
            inputs = read_inputs(request)
            size = sum(map(len, inputs))
            self._check_size(size, "inputs")
            work = partial(
                self._tokenize,
                inputs,
                add_special_tokens=request.add_special_tokens,
                parse_special_tokens=request.parse_special_tokens,
            )
            outputs = await self._pool.run(work, size)
        return pb.TokenizeResponse(outputs=[pb.TokenList(token_ids=ids) for ids in outputs])

    @unary
    async def Detokenize(self, request: pb.DetokenizeRequest, _context: Any) -> pb.DetokenizeResponse:
        with self._metrics.counting_rejections():
            size = len(request.token_ids)
            self._check_size(size, "token_ids")
            decode = partial(self._tokenizer.detokenize, list(request.token_ids))
            text = await self._pool.run(partial(decode, skip_special_tokens=request.skip_special_tokens), size)
        return pb.DetokenizeResponse(text=text)

    @unary
    async def GetInfo(self, _request: pb.TokenizerInfoRequest, _context: Any) -> pb.TokenizerInfo:
        tokenizer = self._tokenizer
        return pb.TokenizerInfo(
            vocab_size=tokenizer.vocab_size,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_ids=tokenizer.eos_token_ids,
            template_version=tokenizer.template_version,
            capabilities=to_capabilities(tokenizer.capabilities),
            tool_parser=tokenizer.tool_format,
            reasoning_parser=tokenizer.reasoning_format,
            reasoning_tags=[
                pb.ReasoningTags(reasoning_parser=name, start_token_ids=tags.start, end_token_ids=tags.end)
                for name, tags in tokenizer.reasoning_tags.items()
            ],
            template_variables=sorted(tokenizer.template_variables),
            vocabulary_hash=tokenizer.vocabulary_hash,
        )

    @property
    def _tokenizer(self) -> PromptTokenizer:
        if self._loaded is None:
            raise Unavailable("the tokenizer is not loaded yet", retry_after=1.0)
        return self._loaded

    def _check_size(self, size: int, param: str) -> None:
        if size > self._max_chars:
            raise ContextLengthExceeded(f"{param} have a size of {size}; the maximum is {self._max_chars}", param=param)

    def _render(
        self, conversation: Conversation, inputs: Sequence[str | bytes]
    ) -> tuple[TokenizedPrompt, list[list[int]]]:
        prompt = self._tokenizer.render(conversation)
        return prompt, self._tokenize(inputs, add_special_tokens=False, parse_special_tokens=True)

    def _tokenize(
        self, inputs: Sequence[str | bytes], *, add_special_tokens: bool, parse_special_tokens: bool
    ) -> list[list[int]]:
        tokenize = partial(
            self._tokenizer.tokenize, add_special_tokens=add_special_tokens, parse_special_tokens=parse_special_tokens
        )
        return [tokenize(value, f"inputs[{index}]") for index, value in enumerate(inputs)]
