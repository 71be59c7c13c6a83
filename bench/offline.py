"""Offline throughput: output tokens per second of the engine in this process, for random prompts of random length.

    python -m bench.offline --requests 256 --input-len 1024 --output-len 1024

The load is that of nano-vllm's benchmark: prompts and outputs of 100 tokens up to these lengths, all submitted at once,
with end-of-sequence ignored. Prints one line.
"""

from __future__ import annotations

import argparse
import random
import time

from engine_svc import LLM, SamplingParams
from pellucid.model import default_model_file

_MIN_LENGTH = 100
_TEMPERATURE = 0.6
_NUM_IDS = 10_000


def prompts(count: int, max_length: int) -> list[list[int]]:
    """Random token ids below 10,000."""
    return [random.choices(range(_NUM_IDS), k=_length(max_length)) for _ in range(count)]


def params(count: int, max_length: int) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=_TEMPERATURE, ignore_eos=True, max_tokens=_length(max_length)) for _ in range(count)
    ]


def _length(max_length: int) -> int:
    return random.randint(min(_MIN_LENGTH, max_length), max_length)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a folder, a .gguf file or a Hugging Face id; default: SmolLM2")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--input-len", type=int, default=1024, help="maximum tokens of a prompt")
    parser.add_argument("--output-len", type=int, default=1024, help="maximum tokens of an output")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    random.seed(0)
    llm = LLM(arguments.model or default_model_file(), max_model_len=arguments.input_len + arguments.output_len)
    token_ids = prompts(arguments.requests, arguments.input_len)
    sampling = params(arguments.requests, arguments.output_len)
    llm.generate(["Warm up."], SamplingParams(), use_tqdm=False)
    started = time.perf_counter()
    outputs = llm.generate(token_ids, sampling, use_tqdm=False)
    seconds = time.perf_counter() - started
    num_tokens = sum(len(output["token_ids"]) for output in outputs)
    print(f"{len(outputs)} requests, {num_tokens} tokens in {seconds:.1f} s: {num_tokens / seconds:.0f} tokens/s")


if __name__ == "__main__":
    main()
