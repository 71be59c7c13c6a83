"""A Hugging Face folder: config.json, generation_config.json and one or more .safetensors files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine_svc.weights.errors import ModelLoadError, check_not_lfs_pointer, load_errors
from modelfiles.json_file import read_json
from modelfiles.safetensors_files import weight_files
from modelfiles.turn_ends import turn_ends_in

_ELEMENT_TYPES: Final = ("F64", "F32", "F16", "BF16")


class SafetensorsFolder:
    """A checkpoint in a folder (see ``engine_svc.weights.checkpoint.Checkpoint``)."""

    is_quantized: Final = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with load_errors():
            self.config: dict[str, Any] = read_json(folder / "config.json")
        if "quantization_config" in self.config:
            raise ModelLoadError(
                f"{folder}: quantised safetensors are not supported; use F32, F16 or BF16, or a .gguf file"
            )
        with load_errors():
            self.eos_token_ids = tuple(sorted(turn_ends_in(folder)))
            self._files = weight_files(folder)

    def tensors(self) -> Iterator[_Tensor]:
        for path in self._files:
            check_not_lfs_pointer(path)
            try:
                with safe_open(path, framework="pt") as file:
                    yield from (_describe(path, file, name) for name in file.keys())  # noqa: SIM118 - not a mapping
            except SafetensorError as error:
                raise ModelLoadError(f"{path} is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    element_type: str
    path: Path
    file: Any

    def quantized(self) -> None:
        return None

    def copy_to(self, destination: Tensor) -> None:
        if self.element_type not in _ELEMENT_TYPES:
            raise ModelLoadError(
                f"{self.path}: dtype {self.element_type} of {self.name} is not supported; "
                f"supported: {', '.join(_ELEMENT_TYPES)}"
            )
        destination.copy_(self.file.get_tensor(self.name))


def _describe(path: Path, file: Any, name: str) -> _Tensor:
    header = file.get_slice(name)
    return _Tensor(name, tuple(header.get_shape()), header.get_dtype(), path, file)
