"""Outputs of transformers' ``generate`` for SmolLM2-135M-Instruct in float32, recorded because that takes minutes.

``python -m tests.numerics.smollm2_greedy FILE.gguf`` records them again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

RECORDING = Path(__file__).with_suffix(".jsonl")
NUM_TOKENS = 64

CHATS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "List three prime numbers.",
    "def fibonacci(n):",
    "The quick brown fox",
    "Translate 'good morning' to Spanish.",
    "2 + 2 * 3 =",
    "Summarise the plot of Romeo and Juliet.",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "In 1969, humans",
    "The opposite of hot is",
    "How many legs does a spider have?",
    "Describe the taste of coffee in one sentence.",
]
TEXTS = [
    "Explain gravity to a child.",
    "Once upon a time",
    "Who wrote Hamlet?",
    "Name a fruit that is yellow.",
    "What does HTTP stand for?",
    "Tell me a joke about cats.",
]


@dataclass(frozen=True, slots=True)
class Greedy:
    """A prompt and its greedy output of ``NUM_TOKENS`` tokens."""

    prompt: list[int]
    output: list[int]


def recorded() -> list[Greedy]:
    lines = RECORDING.read_text().splitlines()
    return [Greedy(**json.loads(line)) for line in lines]


def load_transformers(file: Path) -> Any:
    """The model in float32."""
    return AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()


@torch.inference_mode()
def generate(model: Any, prompt: list[int]) -> list[int]:
    input_ids = torch.tensor([prompt])
    output = model.generate(
        input_ids,
        attention_mask=torch.ones_like(input_ids),
        do_sample=False,
        min_new_tokens=NUM_TOKENS,
        max_new_tokens=NUM_TOKENS,
        pad_token_id=2,
    )
    token_ids: list[int] = output[0, len(prompt) :].tolist()
    return token_ids


def record(file: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        for text in CHATS
    ] + [tokenizer(text).input_ids for text in TEXTS]
    model = load_transformers(file)
    lines = [json.dumps({"prompt": prompt, "output": generate(model, prompt)}) for prompt in prompts]
    RECORDING.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
