"""Reads chosen metadata of a GGUF file, in milliseconds and without looking at a tensor.

The reader of the ``gguf`` package makes an array object of every string in the file, which takes seconds for a
vocabulary. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Final

from modelfiles.errors import ModelFileError
from modelfiles.lfs import check_not_pointer

Scalar = int | float | bool | str
Value = Scalar | list[Scalar]

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_STRING: Final = 8
_ARRAY: Final = 9
_CODES: Final = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_SCALARS: Final = {number: struct.Struct("<" + code) for number, code in _CODES.items()}
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


class GgufError(ModelFileError):
    """The file is not one that can be read; the message says why."""


def read_metadata(path: Path, keys: Collection[str], *, prefixes: tuple[str, ...] = ()) -> dict[str, Value]:
    """The values of those ``keys`` that the file has, and of all keys that begin with one of ``prefixes``.

    Raises ``ModelFileError``, or ``OSError`` when the file cannot be opened.
    """
    check_not_pointer(path)
    with path.open("rb") as file:
        if path.stat().st_size < 24 or file.read(4) != _MAGIC:
            raise GgufError(f"{path} is not a GGUF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _Reader(data).read(frozenset(keys), prefixes)
            except (struct.error, OverflowError, UnicodeDecodeError, KeyError, RecursionError):
                raise GgufError(f"{path} is damaged: its metadata does not follow the format") from None


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = len(_MAGIC)

    def read(self, keys: frozenset[str], prefixes: tuple[str, ...]) -> dict[str, Value]:
        version = self._number(_U32)
        if version not in _VERSIONS:
            raise GgufError(f"GGUF version {version} is not supported; versions 2 and 3 in little-endian order are")
        self._number(_U64)  # tensors
        values: dict[str, Value] = {}
        for _ in range(self._number(_U64)):
            key, kind = self._string(), self._number(_U32)
            if key in keys or key.startswith(prefixes):
                values[key] = self._value(kind)
            else:
                self._skip(kind)
        return values

    def _number(self, layout: struct.Struct) -> int:
        (number,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return int(number)

    def _string(self) -> str:
        start = self._at + _U64.size
        self._skip_string()
        return self._data[start : self._at].decode("utf-8")

    def _value(self, kind: int) -> Value:
        if kind == _ARRAY:
            item, count = self._number(_U32), self._number(_U64)
            return [self._string() for _ in range(count)] if item == _STRING else self._numbers(item, count)
        return self._scalar(kind)

    def _numbers(self, kind: int, count: int) -> list[Scalar]:
        size = _SCALARS[kind].size * count
        if self._at + size > len(self._data):
            raise struct.error("a list ends behind the file")
        values = struct.unpack_from(f"<{count}{_CODES[kind]}", self._data, self._at)
        self._at += size
        return list(values)

    def _scalar(self, kind: int) -> Scalar:
        if kind == _STRING:
            return self._string()
        layout = _SCALARS[kind]
        (value,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return value  # type: ignore[no-any-return]  # the layouts are of numbers

    def _skip(self, kind: int) -> None:
        if kind == _STRING:
            self._skip_string()
        elif kind == _ARRAY:
            self._skip_array()
        else:
            self._at += _SCALARS[kind].size

    def _skip_string(self) -> None:
        (length,) = _U64.unpack_from(self._data, self._at)
        self._at += _U64.size + length
        if self._at > len(self._data):
            raise struct.error("a string ends behind the file")

    def _skip_array(self) -> None:
        item, count = self._number(_U32), self._number(_U64)
        if item in _SCALARS:
            self._at += _SCALARS[item].size * count
            return
        for _ in range(count):
            self._skip(item)
