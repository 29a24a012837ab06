"""Converters of rotary embeddings: ONNX's operator and com.microsoft's."""

from __future__ import annotations

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts


@converts("RotaryEmbedding", since=23)
def _rotary_embedding(
    ctx: ConversionContext,
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
        ctx.raise_invalid_model(
            f"rotary_embedding_dim is {rotary_embedding_dim}, and cos_cache has shape "
            f"{cos.shape}",
            "the last dimension of cos_cache must be rotary_embedding_dim / 2 = "
            f"{rotary_embedding_dim // 2}, one angle per pair of elements",
        )
    if x.rank == 3 and not num_heads:
        ctx.raise_invalid_model(
            "num_heads is 0", "num_heads is required for an input of rank 3"
        )
    heads = num_heads if x.rank == 3 else None
    return ctx.graph.rope(
        x, cos, sin, positions, interleaved=bool(interleaved), num_heads=heads
    )


@converts("RotaryEmbedding", domain="com.microsoft")
def _rotary_embedding_microsoft(
    ctx: ConversionContext,
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
    """Convert com.microsoft's RotaryEmbedding; a single position is the position of the
    first element.
    """
    if is_packed_batching:
        ctx.raise_unsupported(
            f"is_packed_batching is {is_packed_batching}", "must be 0"
        )
    if scale != 1.0:
        ctx.raise_unsupported(f"scale is {scale}", "must be 1")
    g = ctx.graph
    if positions.rank == 1:
        offsets = np.arange(x.shape[-2 if x.rank == 4 else 1], dtype=np.int32)
        positions = g.add(g.cast(positions, DType.I32), g.constant(offsets))
    heads = None
    if x.rank == 3:
        heads = num_heads or x.shape[2] // max(1, 2 * cos.shape[-1])
    return g.rope(
        x, cos, sin, positions, interleaved=bool(interleaved), num_heads=heads
    )
