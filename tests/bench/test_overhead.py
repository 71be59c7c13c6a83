from __future__ import annotations

import re
import sys

import pytest

from bench import overhead
from engine_svc.kernels.library import Kernels


def test_each_batch_size_has_a_row(
    kernels: Kernels, tiny_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--prompt", "20", "--steps", "3", "--batches", "1", "40"]
    monkeypatch.setattr(sys, "argv", ["overhead", "--model", tiny_folder, *sizes])
    overhead.main()
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == ["1", "40"]
    for row in rows:
        assert re.fullmatch(r"\| \d+ \| [\d.]+ \| [\d.]+ \| [\d.]+% \|", row)
        _, _, total, inside, _, _ = row.split("|")
        assert 0 < float(inside) < float(total)
