from __future__ import annotations

import pytest
import torch

from bench import attention
from engine_svc.attention.interface import AttentionConfig
from engine_svc.kernels.library import Kernels

CONFIG = AttentionConfig(4, 2, 8, torch.float32, (None,))


def test_chunks_are_the_steps_of_one_prompt() -> None:
    steps = attention.chunks(70, 30)

    assert [step.context_lens.tolist() for step in steps] == [[30], [60], [70]]
    assert [len(step.slot_mapping) for step in steps] == [30, 30, 10]
    assert torch.cat([step.slot_mapping for step in steps]).unique().numel() == 70
    assert all(torch.equal(step.block_tables, steps[0].block_tables) for step in steps)


def test_sdpa_computes_what_the_backends_compute(kernels: Kernels) -> None:
    inputs = attention._inputs(CONFIG, 40)
    backend = attention._backend("cpu", CONFIG, 3)

    found = backend.begin(attention.chunks(40, 40)[0]).attend(0, *inputs)

    expected = attention.sdpa(CONFIG, inputs)()
    assert isinstance(expected, torch.Tensor)
    torch.testing.assert_close(found, expected[0].transpose(0, 1), rtol=1e-5, atol=1e-5)


def test_steps_are_measured(kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    attention.measure_steps(CONFIG, 1, lambda: 0.0)

    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header.endswith("| reference, ms | cpu, ms | cpu, int8 cache, ms |")
    assert len(rows) == len(attention._CASES)


def test_prompts_are_measured(kernels: Kernels, capsys: pytest.CaptureFixture[str]) -> None:
    attention.main(["--prompts", "50", "70", "--rounds", "1", "--chunk", "32", "--cpu-time", "--threads", "1"])

    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header.startswith("| torch.bfloat16: tokens | SDPA, ms | cpu, ms | cpu, int8 cache, ms | cpu, chunks, ms |")
    assert [row.split("|")[1].strip() for row in rows] == ["50", "70"]
