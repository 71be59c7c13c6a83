"""The engine alone, in this process: how many output tokens a second for random prompts of random length?

    python -m bench.offline --requests 256 --input-len 1024 --output-len 1024

The load is that of nano-vllm's benchmark: prompts and answers of 100 tokens up to these lengths, all handed over at
once, none ending early. Prints one line.
"""

from __future__ import annotations

import argparse
import random
import time

from engine_svc import LLM, SamplingParams
from pellucid.model import default_model_file

_LEAST = 100
_TEMPERATURE = 0.6
_NUM_IDS = 10_000


def prompts(count: int, longest: int) -> list[list[int]]:
    """Token ids that any larger vocabulary has."""
    return [random.choices(range(_NUM_IDS), k=_length(longest)) for _ in range(count)]


def params(count: int, longest: int) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=_TEMPERATURE, ignore_eos=True, max_tokens=_length(longest)) for _ in range(count)
    ]


def _length(longest: int) -> int:
    return random.randint(min(_LEAST, longest), longest)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a folder, a .gguf file or a Hugging Face id; SmolLM2 by default")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--input-len", type=int, default=1024, help="longest prompt, in tokens")
    parser.add_argument("--output-len", type=int, default=1024, help="longest answer, in tokens")
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
