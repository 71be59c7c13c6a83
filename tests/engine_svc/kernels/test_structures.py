from __future__ import annotations

import re
from ctypes import CDLL, Structure, c_int32, c_int64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_svc.kernels import build as building
from engine_svc.kernels import structures
from engine_svc.kernels.build import library_path
from engine_svc.kernels.library import Kernels
from engine_svc.kernels.structures import STRUCTURES, Field, StructureMismatch, check_structures


def test_the_library_matches_the_python_structures(kernels: Kernels) -> None:
    check_structures(CDLL(str(library_path())))


def test_every_structure_of_the_header_is_compared() -> None:
    header = (Path(building.__file__).parent / "csrc" / "structures.h").read_text()

    assert set(re.findall(r"^struct (\w+) {", header, re.MULTILINE)) == {*STRUCTURES, "PellucidField"}


class Moved(Structure):
    _fields_ = [("data", c_int32), ("stride", c_int64)]


class Renamed(Structure):
    _fields_ = [("data", c_int64), ("step", c_int64)]


class Grown(Structure):
    _fields_ = [("data", c_int64), ("stride", c_int64), ("rows", c_int64)]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (Moved, r"PellucidRows\.data is 8 bytes at offset 0 in the library, and 4 bytes at offset 0 in Python"),
        (Renamed, r"PellucidRows\.step is missing in the library, and 8 bytes at offset 8 in Python"),
        (Grown, r"PellucidRows is 16 bytes at offset 0 in the library, and 24 bytes at offset 0 in Python"),
    ],
)
def test_a_mismatch_is_named_when_the_library_is_loaded(
    kernels: Kernels, other: type[Structure], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(structures.STRUCTURES, "PellucidRows", other)

    with pytest.raises(StructureMismatch, match=reason):
        Kernels(library_path())


class Report:
    """A fake of the ctypes function ``pellucid_structures``."""

    restype: Any = None

    def __init__(self, *fields: Field) -> None:
        self._fields = fields

    def __call__(self) -> tuple[Field, ...]:
        return (*self._fields, Field(None, None, 0, 0))


def test_a_field_missing_in_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = {name: entry for name, entry in structures._layout_here() if "." not in name}
    monkeypatch.setattr(structures, "_layout_here", lambda: iter(layout.items()))
    known = [Field(name.encode(), b"", 0, size) for name, (_, size) in layout.items()]
    library = SimpleNamespace(pellucid_structures=Report(*known, Field(b"PellucidRows", b"extra", 16, 8)))

    with pytest.raises(StructureMismatch, match=r"extra is 8 bytes at offset 16 in the library, and missing in Python"):
        check_structures(library)


def test_a_library_without_a_report_is_refused() -> None:
    with pytest.raises(StructureMismatch, match="do not report their structures"):
        check_structures(object())
