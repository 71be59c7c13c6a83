"""Programs written for nano-vllm run when they import from here: its example and its benchmark, in shape and calls."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import offline

ROOT = Path(__file__).parents[3]

EXAMPLE = """
import sys
from engine_svc import LLM, SamplingParams
from transformers import AutoTokenizer

if __name__ == "__main__":
    path = sys.argv[1]
    tokenizer = AutoTokenizer.from_pretrained(path)
    llm = LLM(path, enforce_eager=True, tensor_parallel_size=1)
    sampling_params = SamplingParams(temperature=0.6, max_tokens=16)
    questions = ["who are you?", "count to ten"]
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        for question in questions
    ]
    for prompt, output in zip(prompts, llm.generate(prompts, sampling_params)):
        print(f"asked {prompt!r}")
        print(f"said {output['text']!r}")
"""

BENCHMARK = """
import sys
import time
from random import randint, seed
from engine_svc import LLM, SamplingParams

if __name__ == "__main__":
    seed(0)
    llm = LLM(sys.argv[1], enforce_eager=False, max_model_len=200)
    prompt_token_ids = [[randint(0, 10000) for _ in range(randint(10, 100))] for _ in range(8)]
    sampling_params = [
        SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=randint(5, 40)) for _ in range(8)
    ]
    llm.generate(["Benchmark: "], SamplingParams())
    started = time.time()
    outputs = llm.generate(prompt_token_ids, sampling_params, use_tqdm=False)
    seconds = time.time() - started
    total = sum(params.max_tokens for params in sampling_params)
    assert total == sum(len(output["token_ids"]) for output in outputs)
    print(f"{total} tokens, {total / seconds:.2f} tokens/s")
"""


def run(*arguments: str) -> str:
    """What a program prints, the progress bar and warnings aside."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def test_the_example(tiny_folder: str) -> None:
    lines = run("-c", EXAMPLE, tiny_folder).splitlines()
    assert [line.split()[0] for line in lines] == ["asked", "said"] * 2
    assert "count to ten<|im_end|>" in lines[2]


def test_the_benchmark(tiny_folder: str) -> None:
    assert re.fullmatch(r"\d+ tokens, \d+\.\d\d tokens/s\n", run("-c", BENCHMARK, tiny_folder))


def test_our_benchmark(tiny_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--requests", "6", "--input-len", "120", "--output-len", "20")
    monkeypatch.setattr(sys, "argv", ["offline", "--model", tiny_folder, *sizes])
    offline.main()
    assert re.fullmatch(r"6 requests, 120 tokens in [\d.]+ s: \d+ tokens/s\n", capsys.readouterr().out)
