"""Graph methods for products of vectors, matrices and tensors, by NumPy's names,
and for products of low rank (LoRA) and of groups of rows.

Those of NumPy are the op `matmul`, or products and sums where that is less; vectors
are rows or columns as NumPy has them. Nothing is computed here.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.errors import AttributeRefused, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.einsum import einsum
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import (
    as_integer,
    as_integers,
    bad_shape,
    format_shape,
    normalize_axes,
    short_repr,
)
from rlxweb.ir.tensor import Tensor, TensorLike, op_context

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def matmul(g: Graph, x: TensorLike, y: TensorLike) -> Tensor:
    """Return the product of matrices or of batches of them, as numpy.matmul.

    A vector on the left is a row, one on the right a column, whose axis goes again.
    Errors   ShapeError, DTypeError.
    """
    x, y = g._pair(x, y)
    if not x.rank or not y.rank or (x.rank > 1 and y.rank > 1):
        return g.apply("matmul", x, y)
    is_row, is_column = x.rank == 1, y.rank == 1
    left = x.reshape((1, *x.shape)) if is_row else x
    right = y.reshape((*y.shape, 1)) if is_column else y
    product = g.apply("matmul", left, right)
    shape = product.shape[:-2]
    shape += () if is_row else product.shape[-2:-1]
    return product.reshape(shape if is_column else (*shape, product.shape[-1]))


@graph_method("einsum")
def add_einsum(g: Graph, subscripts: str, *operands: TensorLike) -> Tensor:
    """Sum products by labels of axes, as numpy.einsum: "bij,bjk->bik".

    subscripts  letters for the axes of each operand, "..." for any number of them,
                which broadcast; without "->" the result has the labels that stand
                once, in alphabetical order, behind the "..."
    operands    tensors, and arrays beside them

    A label that an operand has twice is its diagonal; one that the result has not
    is summed, "..." too. Of many operands the cheapest order is taken.
    Errors   AttributeRefused, ShapeError, DTypeError.
    """
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    context = f"einsum {short_repr(subscripts)}"
    if not isinstance(subscripts, str) or not tensors:
        raise AttributeRefused(
            context,
            "expected a string of subscripts followed by at least one tensor",
        )
    converted = [g._pair(operand, tensors[0])[0] for operand in operands]
    with op_context(f"einsum {subscripts!r}", *converted):
        return einsum(g, subscripts, converted)


@graph_method
def diagonal(
    g: Graph, x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> Tensor:
    """Return the elements at [i, i + offset] of two axes as the last axis: a view
    of a dense tensor, as numpy.diagonal. Errors  ShapeError.
    """
    first, second = normalize_axes((axis1, axis2), x.rank)
    shift = as_integer(offset, "an offset")
    other_axes = tuple(a for a in range(x.rank) if a not in (first, second))
    m, n = x.shape[first], x.shape[second]
    count = max(0, min(m, n - shift) if shift >= 0 else min(m + shift, n))
    perm = (*other_axes, first, second)
    if perm != tuple(range(x.rank)):
        x = g.apply("transpose", x, perm=perm)
    flat = g.apply("reshape", x, shape=(*x.shape[:-2], m * n))
    start = shift if shift >= 0 else -shift * n
    stop = start + count * (n + 1)
    if not count:
        start = stop = 0
    return g.apply(
        "slice",
        flat,
        starts=(start,),
        stops=(stop,),
        axes=(len(other_axes),),
        steps=(n + 1,),
    )


@graph_method
def trace(
    g: Graph, x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> Tensor:
    """Return the sum along a diagonal, as numpy.trace."""
    return g.diagonal(x, offset, axis1, axis2).sum(-1)


@graph_method
def dot(g: Graph, x: TensorLike, y: TensorLike) -> Tensor:
    """Sum products over the last axis of x and the last but one (or only) axis of
    y, as numpy.dot.

    Of numbers it is their product. `matmul` is what pairs batches.
    """
    x, y = g._pair(x, y)
    if not x.rank or not y.rank:
        return g.apply("mul", x, y)
    return g.tensordot(x, y, ((-1,), (-2 if y.rank > 1 else -1,)))


@graph_method
def inner(g: Graph, x: TensorLike, y: TensorLike) -> Tensor:
    """Sum products over the last axis of both operands, as numpy.inner."""
    x, y = g._pair(x, y)
    if not x.rank or not y.rank:
        return g.apply("mul", x, y)
    return g.tensordot(x, y, ((-1,), (-1,)))


@graph_method
def vdot(g: Graph, x: TensorLike, y: TensorLike) -> Tensor:
    """Return the sum of products of all elements in their order, as numpy.vdot."""
    x, y = g._pair(x, y)
    return g.inner(x.reshape(-1), y.reshape(-1))


@graph_method
def outer(g: Graph, x: TensorLike, y: TensorLike) -> Tensor:
    """Return each element of x times each of y, [size of x, size of y], as
    numpy.outer.
    """
    x, y = g._pair(x, y)
    return g.apply("mul", x.reshape(-1, 1), y.reshape(1, -1))


@graph_method
def tensordot(g: Graph, x: TensorLike, y: TensorLike, axes: Any = 2) -> Tensor:
    """Sum products over axes of x paired with axes of y, as numpy.tensordot.

    axes   how many of the last of x and the first of y, or those of x and those of
           y, in pairs

    Errors   ShapeError, DTypeError.
    """
    x, y = g._pair(x, y)
    x_axes, y_axes = _paired_axes(axes, x.rank, y.rank)
    letters = iter(string.ascii_letters)
    x_labels = [next(letters) for _ in range(x.rank)]
    y_labels = [next(letters) for _ in range(y.rank)]
    for a, b in zip(x_axes, y_axes, strict=True):
        if x.shape[a] != y.shape[b]:
            raise bad_shape(
                f"axis {a} of {format_shape(x.shape)} is paired with axis {b} "
                f"of {format_shape(y.shape)}",
                "paired axes must have the same size",
            )
        y_labels[b] = x_labels[a]
    out_labels = [n for a, n in enumerate(x_labels) if a not in x_axes]
    out_labels += [n for b, n in enumerate(y_labels) if b not in y_axes]
    subscripts = f"{''.join(x_labels)},{''.join(y_labels)}->{''.join(out_labels)}"
    return einsum(g, subscripts, (x, y))


@graph_method
def fused_matmul_bias_act(
    g: Graph, x: Tensor, w: Tensor, bias: Tensor, activation: str | None = None
) -> Tensor:
    """Return activation(x @ w + bias), as one op."""
    return g.apply("fused_matmul_bias_act", x, w, bias, activation=activation)


def _paired_axes(axes: Any, x_rank: int, y_rank: int) -> tuple[tuple[int, ...], ...]:
    """Return the paired axes of both operands, counted from the front. Errors
    ShapeError.
    """
    if isinstance(axes, Sequence) and len(axes) == 2:
        x_axes, y_axes = (as_integers(group, "an axis") for group in axes)
    else:
        count = as_integer(axes, "the number of axes")
        if not 0 <= count <= min(x_rank, y_rank):
            raise bad_shape(
                f"axes is {count}, but the operands have ranks {x_rank} and {y_rank}",
                f"axes must be from 0 to the smaller rank, {min(x_rank, y_rank)}",
            )
        x_axes, y_axes = tuple(range(x_rank - count, x_rank)), tuple(range(count))
    if len(x_axes) != len(y_axes):
        raise bad_shape(
            f"got {len(x_axes)} axes of x and {len(y_axes)} of y",
            "expected one axis of y per axis of x",
        )
    return normalize_axes(x_axes, x_rank), normalize_axes(y_axes, y_rank)


@graph_method
def lora_matmul(
    g: Graph, x: Tensor, w: Tensor, a: Tensor, b: Tensor, scale: float = 1.0
) -> Tensor:
    """Multiply by weights with a low-rank update: x · w + scale · (x · a) · b.

    Shapes   x [..., K], w [K, N], a [K, R], b [R, N] → [..., N]
    Errors   ShapeError, DTypeError, AttributeRefused
    Source   Hu et al. 2021
    """
    return g.apply("lora_matmul", x, w, a, b, scale=scale)


@graph_method
def grouped_matmul(
    g: Graph,
    x: Tensor,
    w: Tensor,
    groups: Tensor | None = None,
    *,
    offsets: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    """Multiply every row by the matrix of its group, as mixture-of-experts layers
    do. Exactly one of these is given:

    groups    a group for each row, [M] of integers, in any order
    offsets   where each group of rows ends, [G], as torch.nn.functional.grouped_mm
    sizes     how many rows each group has, [G], as jax.lax.ragged_dot
    A row of no group (outside 0 … G - 1, or behind the last one's end) is zeros.
    Shapes   x [M, K], w [G, K, N] → [M, N]
    Errors   ShapeError, DTypeError, AttributeRefused
    """
    context = f"grouped_matmul of {format_shape(x.shape)} and {format_shape(w.shape)}"
    arguments = {"groups": groups, "offsets": offsets, "sizes": sizes}
    groupings = [grouping for grouping in arguments.values() if grouping is not None]
    if len(groupings) != 1:
        present = [name for name, value in arguments.items() if value is not None]
        raise AttributeRefused(
            context,
            f"got {' and '.join(present) or 'no assignment of rows to groups'}",
            "expected exactly one of groups, offsets and sizes",
        )
    if groups is None:
        if groupings[0].shape != w.shape[:1] or not groupings[0].dtype.is_integer:
            name = "offsets" if sizes is None else "sizes"
            raise ShapeError(
                context,
                f"{name} is {format_shape(groupings[0].shape)} {groupings[0].dtype}",
                f"expected shape {format_shape(w.shape[:1])}, one integer per group",
            )
        ends = g.apply("cast", groupings[0], to=DType.I32)
        if sizes is not None:
            ends = g.apply("cumsum", ends, axis=0)
        rows = g.constant(np.arange(x.shape[0], dtype=np.int32)[:, None])
        is_past_end = g.apply("cast", g.apply("ge", rows, ends), to=DType.I32)
        groups = g.apply("sum", is_past_end, axes=(1,), keep_dim=False)
    return g.apply("grouped_matmul", x, w, groups)
