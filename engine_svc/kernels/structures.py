"""ctypes mirrors of the structures in ``csrc/structures.h``, and a check that the library has the same layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_void_p, sizeof
from itertools import count
from typing import Any, Final


class AttentionShape(Structure):
    """``PellucidAttention``"""

    _fields_ = [
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("is_bfloat16", c_int32),
        ("is_int8_cache", c_int32),
        ("num_threads", c_int32),
    ]


class Batch(Structure):
    """``PellucidBatch``"""

    _fields_ = [
        ("slot_mapping", c_void_p),
        ("query_starts", c_void_p),
        ("context_lens", c_void_p),
        ("block_tables", c_void_p),
        ("num_tokens", c_int32),
        ("num_sequences", c_int32),
        ("table_stride", c_int32),
    ]


class Rows(Structure):
    """``PellucidRows``"""

    _fields_ = [("data", c_void_p), ("stride", c_int64)]


class Matrix(Structure):
    """``PellucidMatrix``"""

    _fields_ = [
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("format", c_int32),
        ("panel_bytes", c_int32),
        ("tile_rows", c_int32),
    ]


class Linear(Structure):
    """``PellucidLinear``"""

    _fields_ = [("parts", Matrix * 3), ("num_parts", c_int32)]


class Layer(Structure):
    """``PellucidLayer``"""

    _fields_ = [
        ("qkv", Linear),
        ("out", Linear),
        ("gate_up", Linear),
        ("down", Linear),
        ("before_attention", c_void_p),
        ("after_attention", c_void_p),
        ("before_mlp", c_void_p),
        ("after_mlp", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("window", c_int32),
        ("rope", c_int32),
    ]


class Rope(Structure):
    """``PellucidRope``"""

    _fields_ = [("inverse_frequencies", c_void_p), ("num_pairs", c_int32), ("attention_factor", c_float)]


class Decoder(Structure):
    """``PellucidDecoder``"""

    _fields_ = [
        ("attention", AttentionShape),
        ("embedding", Matrix),
        ("head", Linear),
        ("layers", POINTER(Layer)),
        ("ropes", POINTER(Rope)),
        ("norm", c_void_p),
        ("num_layers", c_int32),
        ("num_ropes", c_int32),
        ("hidden_size", c_int32),
        ("intermediate_size", c_int32),
        ("format", c_int32),
        ("activation", c_int32),
        ("qk_norm", c_int32),
        ("eps", c_float),
        ("embedding_scale", c_float),
        ("logit_softcap", c_float),
    ]


class Tokens(Structure):
    """``PellucidTokens``"""

    _fields_ = [
        ("input_ids", c_void_p),
        ("positions", c_void_p),
        ("rows", c_void_p),
        ("num_rows", c_int64),
    ]


STRUCTURES: Final[dict[str, type[Structure]]] = {
    "PellucidAttention": AttentionShape,
    "PellucidBatch": Batch,
    "PellucidRows": Rows,
    "PellucidMatrix": Matrix,
    "PellucidLinear": Linear,
    "PellucidLayer": Layer,
    "PellucidRope": Rope,
    "PellucidDecoder": Decoder,
    "PellucidTokens": Tokens,
}


class Field(Structure):
    """``PellucidField``, an entry of the table that ``pellucid_structures`` returns"""

    _fields_ = [("structure", c_char_p), ("name", c_char_p), ("offset", c_int64), ("size", c_int64)]


FieldLayout = tuple[int, int]
"""Offset and size in bytes"""


class StructureMismatch(Exception):
    """The library was compiled with other structures than these: calling it would corrupt memory."""


def check_structures(library: Any) -> None:
    """Raises ``StructureMismatch`` naming the first difference."""
    here, there = dict(_layout_here()), dict(_reported_layout(library))
    for name in [*here, *(there.keys() - here.keys())]:
        if here.get(name) != there.get(name):
            raise StructureMismatch(
                f"the compiled kernels do not match engine_svc/kernels/structures.py: {name} is "
                f"{_described(there, name)} in the library, and {_described(here, name)} in Python"
            )


def _layout_here() -> Iterator[tuple[str, FieldLayout]]:
    for name, structure in STRUCTURES.items():
        yield name, (0, sizeof(structure))
        for field in (entry[0] for entry in structure._fields_):
            layout = getattr(structure, field)
            yield f"{name}.{field}", (layout.offset, layout.size)


def _reported_layout(library: Any) -> Iterator[tuple[str, FieldLayout]]:
    """The table of the library; its last entry has no structure."""
    try:
        report = library.pellucid_structures
    except AttributeError:
        raise StructureMismatch("the compiled kernels do not report their structures; rebuild them") from None
    report.restype = POINTER(Field)
    fields = report()
    for index in count():
        field = fields[index]
        if field.structure is None:
            return
        yield ".".join(filter(None, (field.structure.decode(), field.name.decode()))), (field.offset, field.size)


def _described(layout: Mapping[str, FieldLayout], name: str) -> str:
    if name not in layout:
        return "missing"
    offset, size = layout[name]
    return f"{size} bytes at offset {offset}"
