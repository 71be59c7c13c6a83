"""Quality by quantisation format: perplexity on texts, and top-1 agreement with float32.

    python -m bench.quality                                  # SmolLM2-135M on this repository's docs/*.md
    python -m bench.quality README.md --formats int8
    python -m bench.quality --kv-cache-dtypes auto int8      # each format with each type of KV cache

Texts are split into chunks of ``--context`` tokens; each token of a chunk except the first is predicted from those
before it. Prints a Markdown table. ``none`` is bfloat16, which is also the dtype of the KV cache with the integer
formats, unless it is int8.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from engine_svc import LLM, SamplingParams
from pellucid.model import default_model_file

_TEXTS: Final = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
_FORMATS: Final = ("none", "int16", "int8")
_CACHES: Final = ("auto", "int8")


@dataclass(frozen=True, slots=True)
class Predictions:
    """For each position the log probability of the actual token, and the top-1 token."""

    logprobs: list[float]
    top1: list[int]

    @property
    def perplexity(self) -> float:
        return math.exp(-sum(self.logprobs) / len(self.logprobs))

    def agreement(self, other: Predictions) -> float:
        """Top-1 agreement: share of positions with the same top-1 token."""
        pairs = list(zip(self.top1, other.top1, strict=True))
        return sum(mine == theirs for mine, theirs in pairs) / len(pairs)


def predict(llm: LLM, texts: SequenceOf[str], context: int) -> Predictions:
    """Predictions for all texts, in chunks of ``context`` tokens."""
    chunks = [chunk for text in texts for chunk in _chunks(_encode(llm, text), context)]
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    logprobs, top1 = [], []
    for output in llm.generate(chunks, params, use_tqdm=False):
        for entry in filter(None, output["prompt_logprobs"]):
            logprobs.append(next(iter(entry.values())))
            top1.append(next(reversed(entry)))
    return Predictions(logprobs, top1)


def _encode(llm: LLM, text: str) -> list[int]:
    token_ids: list[int] = llm.get_tokenizer().encode(text)
    return token_ids


def _chunks(token_ids: list[int], size: int) -> Iterator[list[int]]:
    """Chunks of ``size`` tokens; a last chunk of one token is left out, because it has nothing to predict."""
    starts = range(0, len(token_ids) - 1, size)
    return (token_ids[start : start + size] for start in starts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", type=Path, default=_TEXTS, metavar="TEXT", help="default: docs/*.md")
    parser.add_argument("--model", default="", help="a folder, a .gguf file or a Hugging Face id; default: SmolLM2")
    parser.add_argument("--formats", nargs="+", default=list(_FORMATS), choices=_FORMATS)
    parser.add_argument("--kv-cache-dtypes", nargs="+", default=["auto"], choices=_CACHES)
    parser.add_argument("--context", type=int, default=512, help="tokens per chunk")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    texts = [path.read_text() for path in arguments.texts]

    def measured(dtype: str, quantization: str, cache: str) -> Predictions:
        model = arguments.model or default_model_file()
        length = arguments.context + 1
        llm = LLM(model, dtype=dtype, quantization=quantization, kv_cache_dtype=cache, max_model_len=length)
        return predict(llm, texts, arguments.context)

    exact = measured("float32", "none", "auto")
    print(f"{len(exact.logprobs)} tokens\n")
    print("| format | perplexity | relative to float32 | top-1 agreement |\n|---|--:|--:|--:|")
    print(f"| float32 | {exact.perplexity:.3f} | 1 | |", flush=True)
    for name, cache in product(arguments.formats, arguments.kv_cache_dtypes):
        found = measured("bfloat16", name, cache)
        ratio, agreement = found.perplexity / exact.perplexity, found.agreement(exact)
        label = name if cache == "auto" else f"{name}, {cache} KV cache"
        print(f"| {label} | {found.perplexity:.3f} | {ratio:.4f} | {agreement:.2%} |", flush=True)


if __name__ == "__main__":
    main()
