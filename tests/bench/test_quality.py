from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest

from bench import quality
from bench.quality import Predictions
from engine_svc.kernels.library import Kernels


def test_perplexity_of_n_equally_likely_tokens_is_n() -> None:
    assert Predictions([-math.log(5)] * 7, [0] * 7).perplexity == pytest.approx(5)


def test_top_1_agreement() -> None:
    exact, other = Predictions([-1.0] * 4, [1, 2, 3, 4]), Predictions([-2.0] * 4, [1, 2, 3, 5])
    assert other.agreement(exact) == 0.75
    assert exact.agreement(exact) == 1


def test_chunks_of_one_token_are_left_out() -> None:
    assert list(quality._chunks(list(range(7)), 3)) == [[0, 1, 2], [3, 4, 5]]
    assert list(quality._chunks(list(range(8)), 3)) == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_formats_are_compared_with_float32(
    kernels: Kernels,
    tiny_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "text").write_text("Every service reads its settings from environment variables. " * 20)
    given = [str(tmp_path / "text"), "--model", tiny_folder, "--context", "100", "--formats", "none", "int8"]
    given += ["--kv-cache-dtypes", "auto", "int8"]
    monkeypatch.setattr(sys, "argv", ["quality", *given])
    quality.main()
    number, _, _, _, *rows = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d+ tokens", number)
    labels = [row.split("|")[1].strip() for row in rows]
    assert labels == ["float32", "none", "none, int8 KV cache", "int8", "int8, int8 KV cache"]
    assert all(re.fullmatch(r"\| [^|]+ \| [\d.]+ \| [\d.]+ \| [\d.]+% \|", row) for row in rows[1:])
    ratios = [float(row.split("|")[3]) for row in rows]
    assert ratios == pytest.approx([1] * 5, abs=0.1)
