from __future__ import annotations

import re
import sys

import pytest

from bench import interference
from bench.interference import Round
from engine_svc.kernels.library import Kernels


@pytest.mark.parametrize("options", [[], ["--cpu-time", "--max-step-ms", "5"]])
def test_each_round_has_a_row(
    kernels: Kernels,
    tiny_folder: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
) -> None:
    sizes = ["--streams", "2", "--prompt", "40", "--around", "3", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", ["interference", "--model", tiny_folder, *sizes, *options])
    interference.main()
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == ["1", "2"]
    for row in rows:
        assert re.fullmatch(r"\|( [\d.]+ \|)+", row)
        assert row.count("|") == header.count("|")


def test_ratios_are_of_one_round() -> None:
    row = Round(alone=2.0, beside=3.0, before=[0.1] * 9, during=[0.2] * 9 + [0.5], after=[0.1] * 9).row(7)
    assert row == "| 7 | 100 | 100 | 500 | 5.00 | 200 | 500 | 2.50 | 5.0 | 2000 | 3000 | 1.50 |"
