"""What a format costs in quality: perplexity on texts, and how often the likeliest next token is that of float32.

    python -m bench.quality                                  # SmolLM2-135M on this repository's docs/*.md
    python -m bench.quality README.md --formats int8

Texts are cut into pieces of ``--context`` tokens, and every token of a piece but its first is predicted from those
before it. Prints a Markdown table. ``none`` is bfloat16, which the cache is with integers too.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine_svc import LLM, SamplingParams
from pellucid.model import default_model_file

_TEXTS: Final = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
_FORMATS: Final = ("none", "int16", "int8")


@dataclass(frozen=True, slots=True)
class Predictions:
    """For each position the log probability of the token that is there, and the token that was likeliest."""

    logprobs: list[float]
    likeliest: list[int]

    @property
    def perplexity(self) -> float:
        return math.exp(-sum(self.logprobs) / len(self.logprobs))

    def agreement(self, other: Predictions) -> float:
        """Share of the positions with the same likeliest token."""
        pairs = list(zip(self.likeliest, other.likeliest, strict=True))
        return sum(mine == theirs for mine, theirs in pairs) / len(pairs)


def predict(llm: LLM, texts: SequenceOf[str], context: int) -> Predictions:
    """All texts, piece by piece."""
    pieces = [piece for text in texts for piece in _pieces(_encode(llm, text), context)]
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    logprobs, likeliest = [], []
    for output in llm.generate(pieces, params, use_tqdm=False):
        for entry in filter(None, output["prompt_logprobs"]):
            logprobs.append(next(iter(entry.values())))
            likeliest.append(next(reversed(entry)))
    return Predictions(logprobs, likeliest)


def _encode(llm: LLM, text: str) -> list[int]:
    token_ids: list[int] = llm.get_tokenizer().encode(text)
    return token_ids


def _pieces(token_ids: list[int], size: int) -> Iterator[list[int]]:
    """Those too short to predict anything are left out."""
    starts = range(0, len(token_ids) - 1, size)
    return (token_ids[start : start + size] for start in starts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", type=Path, default=_TEXTS, metavar="TEXT", help="default: docs/*.md")
    parser.add_argument("--model", default="", help="a folder, a .gguf file or a Hugging Face id; SmolLM2 by default")
    parser.add_argument("--formats", nargs="+", default=list(_FORMATS), choices=_FORMATS)
    parser.add_argument("--context", type=int, default=512, help="tokens of a piece")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    texts = [path.read_text() for path in arguments.texts]

    def measured(dtype: str, quantization: str) -> Predictions:
        model, longest = arguments.model or default_model_file(), arguments.context + 1
        llm = LLM(model, dtype=dtype, quantization=quantization, max_model_len=longest)
        return predict(llm, texts, arguments.context)

    exact = measured("float32", "none")
    print(f"{len(exact.logprobs)} tokens\n")
    print("| format | perplexity | to float32 | same likeliest token |\n|---|--:|--:|--:|")
    print(f"| float32 | {exact.perplexity:.3f} | 1 | |", flush=True)
    for name in arguments.formats:
        found = measured("bfloat16", name)
        ratio, agreement = found.perplexity / exact.perplexity, found.agreement(exact)
        print(f"| {name} | {found.perplexity:.3f} | {ratio:.4f} | {agreement:.2%} |", flush=True)


if __name__ == "__main__":
    main()
