"""The float32 logits of every native family equal those of transformers, on tiny random checkpoints.

Both with torch and with the compiled kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig

from engine_svc.attention.interface import PagedBatch
from engine_svc.executors.interface import Executor, PreparedStep
from engine_svc.kernels.library import load_kernels
from engine_svc.kernels.packing import Format
from tests.engine_svc import loaded, tiny

LENGTH = 60
BLOCK_SIZE = 16
NUM_BLOCKS = -(-LENGTH // BLOCK_SIZE)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.5, 2.0],
    "long_factor": [2.0, 4.0, 8.0],
}

CONFIGS = {
    "grouped-query attention": tiny.llama(),
    "multi-head attention": tiny.llama(num_key_value_heads=4),
    "multi-query attention": tiny.llama(num_key_value_heads=1),
    "three query heads per KV head": tiny.llama(num_attention_heads=6, num_key_value_heads=2, head_dim=4),
    "tied embeddings": tiny.llama(tie_word_embeddings=True),
    "biases": tiny.llama(attention_bias=True, mlp_bias=True),
    "head size not a power of two": tiny.llama(head_dim=10),
    "one layer, odd sizes": tiny.llama(num_hidden_layers=1, intermediate_size=37, vocab_size=101),
    "linear scaling": tiny.llama(rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    "llama 3 scaling": tiny.llama(rope_parameters=LLAMA3, head_dim=16),
    "other RoPE base and epsilon": tiny.llama(
        rope_parameters={"rope_type": "default", "rope_theta": 100.0}, rms_norm_eps=1e-2
    ),
    "mistral with a window": tiny.mistral(sliding_window=16),
    "mistral with a window longer than the text": tiny.mistral(sliding_window=100),
    "mistral without a window": tiny.mistral(sliding_window=None),
    "qwen 2": tiny.qwen2(),
    "qwen 2, tied, another head size": tiny.qwen2(tie_word_embeddings=True, head_dim=10),
    "qwen 2 with a window": tiny.qwen2(use_sliding_window=True, sliding_window=16, max_window_layers=1),
    "qwen 3": tiny.qwen3(),
    "qwen 3, tied, another head size": tiny.qwen3(tie_word_embeddings=True, head_dim=10),
    "qwen 3 with biases and a window": tiny.qwen3(
        attention_bias=True, use_sliding_window=True, sliding_window=16, max_window_layers=1
    ),
    "gemma 2": tiny.gemma2(),
    "gemma 2, untied, another head size": tiny.gemma2(tie_word_embeddings=False, head_dim=10),
    "gemma 2 with biases and without soft caps": tiny.gemma2(
        attention_bias=True, attn_logit_softcapping=None, final_logit_softcapping=None
    ),
    "gemma 3": tiny.gemma3(),
    "gemma 3, untied, another head size": tiny.gemma3(tie_word_embeddings=False, head_dim=10),
    "gemma 3 with scaled RoPE in full layers": tiny.gemma3(
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
        final_logit_softcapping=2.0,
    ),
    "phi 3": tiny.phi3(),
    "phi 3, tied, with a window": tiny.phi3(tie_word_embeddings=True, sliding_window=16),
    "phi 3 with partial rotary factor": tiny.phi3(
        hidden_size=40, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.65}
    ),
    "phi 3 with longrope": tiny.phi3(original_max_position_embeddings=64, rope_parameters=LONGROPE),
    "olmo 2": tiny.olmo2(),
    "olmo 2, tied, biases": tiny.olmo2(tie_word_embeddings=True, attention_bias=True),
    "olmo 2, multi-head attention": tiny.olmo2(num_key_value_heads=4, hidden_size=40),
}


KERNELS = load_kernels()
BACKENDS = ["reference", pytest.param("cpu", marks=pytest.mark.skipif(KERNELS is None, reason="needs a compiler"))]


def load(path: Path, format_: Format = Format.FLOAT32, backend: str = "reference") -> Executor:
    options = {"attention_backend": backend} | loaded.FORMATS[format_]
    return loaded.load(path, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, **options)


@torch.inference_mode()
def logits_of(executor: Executor, token_ids: torch.Tensor, steps: list[int]) -> torch.Tensor:
    """Logits of all tokens of one sequence, computed in steps of these numbers of tokens [tokens, vocab]"""
    table = torch.arange(NUM_BLOCKS, dtype=torch.int32).flip(0)
    found, start = [], 0
    for count in steps:
        positions = torch.arange(start, start + count)
        batch = PagedBatch(
            slot_mapping=table[positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE,
            query_starts=torch.tensor([0, count], dtype=torch.int32),
            context_lens=torch.tensor([start + count], dtype=torch.int32),
            block_tables=table[None],
        )
        run = token_ids[start : start + count]
        logits = executor.forward(PreparedStep(run, positions, torch.arange(count), count, batch))
        found.append(logits[:])
        start += count
    return torch.cat(found)


@torch.inference_mode()
def expected_logits(model: Any, token_ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(token_ids[None]).logits[0]
    return logits


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("steps", [[LENGTH], [16, 16, 16, 12], [17] + [1] * 43], ids=["whole", "chunks", "decode"])
def test_logits_equal(tmp_path: Path, config: PretrainedConfig, steps: list[int], backend: str) -> None:
    model = tiny.random_model(config)
    decoder = load(Path(tiny.save(model, tmp_path)), backend=backend)
    token_ids = torch.arange(LENGTH) * 7 % config.vocab_size
    expected = expected_logits(model, token_ids)

    logits = logits_of(decoder, token_ids, steps)

    assert expected.std() > 0.5, "near-constant logits would make the comparison meaningless"
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


IN_GGUF = {
    name: config
    for name, config in CONFIGS.items()
    if not name.startswith("gemma") and name not in ("qwen 2 with a window", "qwen 3 with biases and a window")
} | {
    # GGUF files do not have the layer types and the scale; these configurations match what the reader assumes.
    "gemma 2": tiny.gemma2(query_pre_attn_scalar=6),
    "gemma 2, another head size": tiny.gemma2(head_dim=10, query_pre_attn_scalar=10),
    "gemma 3": tiny.gemma3(query_pre_attn_scalar=6, num_hidden_layers=7, layer_types=None),
    "gemma 3, untied, with scaled RoPE in full layers and a soft cap": tiny.gemma3(
        head_dim=10,
        query_pre_attn_scalar=10,
        num_hidden_layers=7,
        layer_types=None,
        tie_word_embeddings=False,
        final_logit_softcapping=2.0,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0}},
    ),
}


@pytest.mark.parametrize("config", IN_GGUF.values(), ids=IN_GGUF.keys())
def test_a_gguf_file_gives_the_same_logits(tmp_path: Path, config: PretrainedConfig) -> None:
    model = tiny.random_model(config)
    token_ids = torch.arange(LENGTH) * 5 % config.vocab_size

    logits = logits_of(load(Path(tiny.save_gguf(model, tmp_path / "tiny.gguf"))), token_ids, [LENGTH])

    torch.testing.assert_close(logits, expected_logits(model, token_ids), rtol=0, atol=1e-4)


def test_a_sharded_folder_gives_the_same_logits(tmp_path: Path) -> None:
    model = tiny.random_model(tiny.llama())
    token_ids = torch.arange(LENGTH)

    logits = logits_of(load(Path(tiny.save(model, tmp_path, max_shard_size="4KB"))), token_ids, [LENGTH])

    torch.testing.assert_close(logits, expected_logits(model, token_ids), rtol=0, atol=1e-4)


NARROW = [
    "grouped-query attention",
    "biases",
    "mistral with a window",
    "qwen 3",
    "gemma 2",
    "gemma 3",
    "phi 3",
    "olmo 2",
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NARROW)
def test_bfloat16_error_is_as_small_as_in_transformers(tmp_path: Path, name: str, backend: str) -> None:
    config = CONFIGS[name]
    model = tiny.random_model(config)
    decoder = load(Path(tiny.save(model, tmp_path)), Format.BFLOAT16, backend)
    token_ids = torch.arange(LENGTH) * 7 % config.vocab_size
    truth = expected_logits(model, token_ids)
    theirs = expected_logits(model.bfloat16(), token_ids).float()

    ours = logits_of(decoder, token_ids, [LENGTH]).float()

    assert error(ours, truth) < 1.2 * error(theirs, truth)


@pytest.mark.skipif(KERNELS is None, reason="needs a compiler")
@pytest.mark.parametrize(("format_", "worse"), [(Format.INT16, 2.0), (Format.INT8, 3.0)])
@pytest.mark.parametrize("name", NARROW)
def test_quantisation_error_is_of_the_order_of_bfloat16(
    tmp_path: Path, name: str, format_: Format, worse: float
) -> None:
    """The weights are rounded to 8 bits too, which causes more error than activations of 15 bits."""
    config = CONFIGS[name]
    model = tiny.random_model(config)
    decoder = load(Path(tiny.save(model, tmp_path)), format_, "cpu")
    token_ids = torch.arange(LENGTH) * 7 % config.vocab_size
    truth = expected_logits(model, token_ids)
    theirs = expected_logits(model.bfloat16(), token_ids).float()

    ours = logits_of(decoder, token_ids, [LENGTH])

    assert error(ours, truth) < worse * error(theirs, truth)


@pytest.mark.skipif(KERNELS is None, reason="needs a compiler")
@pytest.mark.parametrize("format_", [Format.FLOAT32, Format.BFLOAT16, Format.INT16, Format.INT8])
@pytest.mark.parametrize("name", NARROW)
def test_kernels_are_bit_for_bit_equal_for_any_steps(tmp_path: Path, name: str, format_: Format) -> None:
    config = CONFIGS[name]
    decoder = load(Path(tiny.save(tiny.random_model(config), tmp_path)), format_, "cpu")
    token_ids = torch.arange(LENGTH) * 7 % config.vocab_size

    whole, *others = (logits_of(decoder, token_ids, steps) for steps in ([LENGTH], [1] * LENGTH, [3, 7, 16, 20, 14]))

    assert all(torch.equal(whole, other) for other in others)


def error(logits: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Root mean square."""
    return (logits - truth).square().mean().sqrt()
