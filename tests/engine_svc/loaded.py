"""Executors of checkpoints on disk, without a runner around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine_svc.executors.cache import CacheSize
from engine_svc.executors.interface import Executor
from engine_svc.executors.load_request import LoadRequest
from engine_svc.executors.loading import load_executor
from engine_svc.kernels.packing import Format
from engine_svc.weights.checkpoint import open_checkpoint

BLOCK_SIZE = 16
FORMATS: dict[Format, dict[str, str]] = {
    Format.FLOAT32: {"dtype": "float32"},
    Format.BFLOAT16: {"dtype": "bfloat16"},
    Format.INT16: {"dtype": "auto", "quantization": "int16"},
    Format.INT8: {"dtype": "auto", "quantization": "int8"},
}
"""Options for each format"""


def load_request(path: Path | str, *, num_blocks: int = 4, block_size: int = BLOCK_SIZE, **options: Any) -> LoadRequest:
    """In float32 by default."""
    path = Path(path)
    given = {"dtype": "float32", "quantization": "none"} | options
    folder = path if path.is_dir() else None
    return LoadRequest(open_checkpoint(path), CacheSize(block_size, num_blocks), folder, **given)


def load(path: Path | str, **options: Any) -> Executor:
    return load_executor(load_request(path, **options))
