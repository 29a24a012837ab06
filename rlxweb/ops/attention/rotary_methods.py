"""Graph methods for rotary position embedding.

Positions, heads and tables are brought into the form that the op takes. Nothing is
computed here but tables of angles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlxweb.core.errors import AttributeRefused, ShapeError
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import as_integer, format_shape
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def rope(
    g: Graph,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    interleaved: bool = False,
    num_heads: int | None = None,
    head_dim: int | None = None,
) -> Tensor:
    """Apply rotary position embedding: rotate pairs of elements by the angle of
    their position.

    cos, sin     a table [P, R/2], whose row p is position p's; or [B, S, R/2], a
                 row for each place. R <= D elements are turned, the rest stays
    positions    of the places, [S] or [B, S] of integers: rows of the table. None:
                 its first S
    interleaved  pairs are neighbours (GPT-J), not halves (Llama, GPT-NeoX)
    num_heads    of x [B, S, H·D]
    head_dim     D, in place of num_heads: pyrlx's word
    Shapes   x [..., S, D], [B, H, S, D] or, with num_heads, [B, S, H·D]
    Errors   ShapeError, DTypeError, AttributeRefused; IndexRefused when it runs,
             for a position outside the table
    Source   Su et al. 2021; ONNX's RotaryEmbedding
    """
    context, original = f"rope of {format_shape(x.shape)}", x
    if num_heads is not None:
        num_heads = as_integer(num_heads, f"{context}: num_heads")
    if head_dim is not None:
        head_dim = as_integer(head_dim, f"{context}: head_dim")
        num_heads = _head_count(context, x, head_dim, num_heads)
    if num_heads is not None:
        x = _split_heads(g, context, x, num_heads)
    if x.rank < 2:
        raise ShapeError(
            context,
            "the array has no sequence axis",
            "expected [..., length, size]",
        )
    length = x.shape[-3 if num_heads else -2]
    cos, sin = (
        _position_angles(g, context, name, table, positions, length)
        for name, table in (("cos", cos), ("sin", sin))
    )
    if num_heads:  # [B, S, H, D]
        cos, sin = (g.reshape(c, (*c.shape[:-1], 1, c.shape[-1])) for c in (cos, sin))
    elif cos.rank == 3 and x.rank == 4:
        cos, sin = (g.reshape(c, (c.shape[0], 1, *c.shape[1:])) for c in (cos, sin))
    rotated = g.apply("rope", x, cos, sin, interleaved=interleaved)
    return g.apply("reshape", rotated, shape=original.shape) if num_heads else rotated


@graph_method
def rope_table(
    g: Graph, length: int, size: int, base: float = 10000.0, dtype: DTypeLike = "f32"
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [length, size/2] of positions 0 … for heads of `size`.

    Angle i of position p is p · base^(-2i / size), computed in float64.
    Errors   AttributeRefused.
    """
    if length < 1 or size < 2 or size % 2 or not base > 0:
        raise AttributeRefused(
            "rope_table",
            f"length={length}, size={size}, base={base}",
            "expected length >= 1, an even size >= 2 and base > 0",
        )
    frequencies = float(base) ** (-np.arange(0, size, 2) / size)
    angles = np.arange(length)[:, None] * frequencies
    element_type = as_dtype(dtype)
    return g.constant(np.cos(angles), element_type), g.constant(
        np.sin(angles), element_type
    )


def _head_count(
    context: str, x: Tensor, head_dim: int, heads: int | None
) -> int | None:
    """Return the number of heads of that length; None for a single head.

    Errors   ShapeError.
    """
    size = x.shape[-1] if x.rank else 0
    count = size // head_dim if head_dim > 0 and size % head_dim == 0 else 0
    if not count or heads not in (None, count):
        heads_text = "" if heads is None else f" and num_heads={heads}"
        raise ShapeError(
            context,
            f"head_dim={head_dim}{heads_text} for a last axis of {size} elements",
            "head_dim must be >= 1 and divide the length of the last axis"
            if heads is None
            else "the last axis must have num_heads · head_dim elements",
        )
    return heads if count == 1 else count


def _split_heads(g: Graph, context: str, x: Tensor, heads: int) -> Tensor:
    """Reshape [B, S, H·D] to [B, S, H, D]."""
    if x.rank != 3 or heads < 1 or x.shape[2] % heads:
        raise ShapeError(
            context,
            f"num_heads={heads} for {format_shape(x.shape)}",
            "expected an array [batch, length, size] and a num_heads >= 1 that divides "
            "the size",
        )
    shape: Sequence[int] = (*x.shape[:2], heads, x.shape[2] // heads)
    return g.reshape(x, shape)


def _position_angles(
    g: Graph,
    context: str,
    name: str,
    table: Tensor,
    positions: Tensor | None,
    length: int,
) -> Tensor:
    """Return the rows of a table for the positions: [S, R/2] or [B, S, R/2]."""
    if positions is None:
        if table.rank == 2 and table.shape[0] > length:
            return g.narrow(table, 0, 0, length)
        return table
    if table.rank != 2 or positions.rank not in (1, 2):
        raise ShapeError(
            context,
            f"positions has shape {format_shape(positions.shape)}, {name} has shape "
            f"{format_shape(table.shape)}",
            "positions must be [length] or [batch, length], and cos and sin must have "
            "rank 2 (one row per position)",
        )
    if positions.dtype is DType.I64:
        positions = g.cast(positions, DType.I32)
    return g.gather(table, positions)
