"""The structures that the kernels take, as their headers in ``csrc/`` declare them."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p


class AttentionShape(Structure):
    """``PellucidAttention`` in attention.h."""

    _fields_ = [
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("is_bfloat16", c_int32),
        ("num_threads", c_int32),
    ]


class Batch(Structure):
    """``PellucidBatch`` in attention.h."""

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
    """``PellucidRows`` in attention.h."""

    _fields_ = [("data", c_void_p), ("stride", c_int64)]


class Matrix(Structure):
    """``PellucidMatrix`` in matrix.h."""

    _fields_ = [
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("format", c_int32),
        ("panel_bytes", c_int32),
    ]


class Linear(Structure):
    """``PellucidLinear`` in matrix.h."""

    _fields_ = [("parts", Matrix * 3), ("num_parts", c_int32)]


class Layer(Structure):
    """``PellucidLayer`` in decoder.cpp."""

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
    """``PellucidRope`` in decoder.cpp."""

    _fields_ = [("inverse_frequencies", c_void_p), ("num_pairs", c_int32), ("magnitude", c_float)]


class Decoder(Structure):
    """``PellucidDecoder`` in decoder.cpp."""

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
        ("head_norms", c_int32),
        ("eps", c_float),
        ("embedding_scale", c_float),
        ("logit_softcap", c_float),
    ]


class Tokens(Structure):
    """``PellucidTokens`` in decoder.cpp."""

    _fields_ = [
        ("input_ids", c_void_p),
        ("positions", c_void_p),
        ("rows", c_void_p),
        ("num_rows", c_int64),
    ]
