"""Reads the metadata of a GGUF file in milliseconds, without reading tensors.

The reader of the ``gguf`` package creates an array for every string in the file, which takes seconds for a vocabulary.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from modelfiles.errors import ModelFileError
from modelfiles.lfs import check_not_pointer

Scalar = int | float | bool | str
Value = Scalar | list[Scalar]

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_SMALLEST: Final = 24
_STRING: Final = 8
_ARRAY: Final = 9
_CODES: Final = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_SCALARS: Final = {number: struct.Struct("<" + code) for number, code in _CODES.items()}
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


class GgufError(ModelFileError):
    """The file is not a GGUF file, damaged, or of an unsupported version; the message says which."""


def read_metadata(path: Path, keys: Collection[str], *, prefixes: tuple[str, ...] = ()) -> dict[str, Value]:
    """The values of the ``keys`` that the file has, and of all keys that start with one of ``prefixes``.

    Raises ``ModelFileError``, or ``OSError`` if the file cannot be opened.
    """
    wanted = frozenset(keys)
    with open_gguf(path) as reader:
        return reader.metadata(lambda key: key in wanted or key.startswith(prefixes))


@contextmanager
def open_gguf(path: Path) -> Iterator[GgufReader]:
    """A reader at the start of a file. Damage raises ``GgufError``."""
    check_not_pointer(path)
    with path.open("rb") as file:
        if path.stat().st_size < _SMALLEST or file.read(len(_MAGIC)) != _MAGIC:
            raise GgufError(f"{path} is not a GGUF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                yield GgufReader(data)
            except GgufError as error:
                raise GgufError(f"{path} cannot be read: {error}") from None
            except (struct.error, OverflowError, ValueError, KeyError, RecursionError):
                raise GgufError(f"{path} is damaged: invalid GGUF header") from None


class GgufReader:
    """Reads a file from its start: ``num_tensors``, then the metadata, then the data after it.

    Methods raise ``struct.error``, ``ValueError`` and similar errors if the file is damaged.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.at = len(_MAGIC)
        """Number of bytes read."""
        if (version := self.u32()) not in _VERSIONS:
            raise GgufError(f"unsupported GGUF version {version}; supported: 2 and 3, little-endian")
        self.num_tensors = self.u64()
        self._num_values = self.u64()

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return len(self._data)

    def metadata(self, is_wanted: Callable[[str], bool], *, lists_of_strings: bool = True) -> dict[str, Value]:
        """The values of the keys that ``is_wanted`` accepts, optionally without lists of strings."""
        values: dict[str, Value] = {}
        for _ in range(self._num_values):
            key, kind = self.string(), self.u32()
            if is_wanted(key) and (lists_of_strings or not self._is_list_of_strings(kind)):
                values[key] = self._value(kind)
            else:
                self._skip(kind)
        return values

    def u32(self) -> int:
        return self._number(_U32)

    def u64(self) -> int:
        return self._number(_U64)

    def string(self) -> str:
        start = self.at + _U64.size
        self._skip_string()
        return self._data[start : self.at].decode("utf-8")

    def _number(self, layout: struct.Struct) -> int:
        (number,) = layout.unpack_from(self._data, self.at)
        self.at += layout.size
        return int(number)

    def _is_list_of_strings(self, kind: int) -> bool:
        return kind == _ARRAY and _U32.unpack_from(self._data, self.at) == (_STRING,)

    def _value(self, kind: int) -> Value:
        if kind == _ARRAY:
            item, count = self.u32(), self.u64()
            return [self.string() for _ in range(count)] if item == _STRING else self._numbers(item, count)
        return self._scalar(kind)

    def _numbers(self, kind: int, count: int) -> list[Scalar]:
        size = _SCALARS[kind].size * count
        self._check_holds(size)
        values = struct.unpack_from(f"<{count}{_CODES[kind]}", self._data, self.at)
        self.at += size
        return list(values)

    def _scalar(self, kind: int) -> Scalar:
        if kind == _STRING:
            return self.string()
        layout = _SCALARS[kind]
        (value,) = layout.unpack_from(self._data, self.at)
        self.at += layout.size
        return value  # type: ignore[no-any-return]  # the layouts are of numbers

    def _skip(self, kind: int) -> None:
        if kind == _STRING:
            self._skip_string()
        elif kind == _ARRAY:
            self._skip_array()
        else:
            self.at += _SCALARS[kind].size

    def _skip_string(self) -> None:
        (length,) = _U64.unpack_from(self._data, self.at)
        self._check_holds(_U64.size + length)
        self.at += _U64.size + length

    def _skip_array(self) -> None:
        item, count = self.u32(), self.u64()
        if item in _SCALARS:
            self.at += _SCALARS[item].size * count
            return
        for _ in range(count):
            self._skip(item)

    def _check_holds(self, size: int) -> None:
        if self.at + size > len(self._data):
            raise ValueError("truncated header")
