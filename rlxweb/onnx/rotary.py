"""Rotary embedding, ONNX's own and com.microsoft's."""

from __future__ import annotations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts


@converts("RotaryEmbedding", since=23)
def _rotary(
    call: Call,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    if rotary_embedding_dim and cos.shape[-1:] != (rotary_embedding_dim // 2,):
        call.contradict(
            f"rotary_embedding_dim {rotary_embedding_dim} and angles {cos.shape}",
            "an angle for two elements",
        )
    if x.rank == 3 and not num_heads:
        call.contradict("num_heads is 0", "[B, S, heads · size] wants them")
    heads = num_heads if x.rank == 3 else None
    return call.g.rope(
        x, cos, sin, positions, interleaved=bool(interleaved), num_heads=heads
    )


@converts("RotaryEmbedding", domain="com.microsoft")
def _rotary_of_microsoft(
    call: Call,
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """One position alone is that of the first place."""
    if is_packed_batching or scale != 1.0:
        call.refuse("packed batches or a scale", "is_packed_batching 0 and scale 1")
    g = call.g
    if positions.rank == 1:
        places = np.arange(x.shape[-2 if x.rank == 4 else 1], dtype=np.int32)
        positions = g.add(g.cast(positions, DType.I32), g.constant(places))
    heads = None
    if x.rank == 3:
        heads = num_heads or x.shape[2] // max(1, 2 * cos.shape[-1])
    return g.rope(
        x, cos, sin, positions, interleaved=bool(interleaved), num_heads=heads
    )
