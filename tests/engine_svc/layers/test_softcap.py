from __future__ import annotations

import math

import torch

from engine_svc.layers.softcap import softcap


def test_large_values_come_near_the_cap_and_small_ones_stay() -> None:
    capped = softcap(torch.tensor([-1e6, -0.01, 0.0, 0.01, 5.0, 1e6]), 5.0)

    torch.testing.assert_close(capped, torch.tensor([-5.0, -0.01, 0.0, 0.01, 5 * math.tanh(1), 5.0]), rtol=1e-5, atol=0)


def test_without_a_cap_nothing_happens() -> None:
    x = torch.tensor([-1e6, 1e6])

    assert softcap(x, None) is x
