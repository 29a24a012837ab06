"""Vector-Jacobian products of pad, tile, repeat, roll and dilate, built from ops of the
same kind where possible.

What is added is cut off, what was cut off is zero, copies are added up; a table is
written only of the edges that padding mirrors, and of counts that differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlxweb.ir.derivative import VjpContext, VjpRule
from rlxweb.ir.shape_arithmetic import normalize_axes, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.layout.index_map_vjp import IndexTable, index_map_axis_vjp

PaddingTableFunction = Callable[[int, int, int, str], IndexTable]
"""Function (size, before, after, mode) → source positions of a padded axis."""


def pad_vjp(padding_table: PaddingTableFunction) -> VjpRule:
    """Return the VJP rule of `pad`."""

    def rule(ctx: VjpContext) -> list[Tensor | None]:
        grad, mode, x = ctx.grad, ctx.attrs["mode"], ctx.x
        before, after = ctx.attrs["before"], ctx.attrs["after"]
        axes = normalize_axes(ctx.attrs["axes"], x.rank)
        if mode == "constant":
            return [_unpad(grad, axes, before, after)]
        for axis, front, back in zip(axes, before, after, strict=True):
            table = padding_table(x.shape[axis], front, back, mode)
            grad = _fold_edges(grad, axis, (front, back), table, x.shape[axis])
        return [grad]

    return rule


def _unpad(
    grad: Tensor, axes: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]
) -> Tensor:
    """Remove the padding of some axes, and pad with zeros where elements were
    cropped.
    """
    negated_pads = [tuple(-n for n in pads) for pads in (before, after)]
    return grad.graph.apply(
        "pad", grad, axes=axes, before=negated_pads[0], after=negated_pads[1]
    )


def _fold_edges(
    grad: Tensor, axis: int, pads: tuple[int, int], table: IndexTable, size: int
) -> Tensor:
    """Return the middle of a padded axis, with its edges added to the elements they
    came from.
    """
    g, (before, after), length = grad.graph, pads, len(table)
    folded = _unpad(grad, (axis,), (before,), (after,))
    front = min(max(before, 0), length)
    back = min(max(size + before, front), length)
    for start, edge_table in ((0, table[:front]), (back, table[back:])):
        if not len(edge_table):
            continue
        low, high = int(edge_table.min()), int(edge_table.max()) + 1
        edge = g.narrow(grad, axis, start, len(edge_table))
        edge = index_map_axis_vjp(edge, axis, edge_table - low, high - low)
        folded = folded + _unpad(edge, (axis,), (-low,), (high - size,))
    return folded


def tile_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `tile`: sum the copies along every axis, one axis after the other.

    All at once would take twice the axes, more than an array may have.
    """
    grad, shape = ctx.grad, tuple(ctx.x.shape)
    for axis, times in enumerate(ctx.attrs["repeats"]):
        if times != 1:
            leading, trailing = numel(shape[:axis]), numel(grad.shape[axis + 1 :])
            split = ctx.g.reshape(grad, (leading, times, shape[axis] * trailing))
            summed_shape = (*shape[: axis + 1], *grad.shape[axis + 1 :])
            grad = ctx.g.reshape(ctx.g.sum(split, 1), summed_shape)
    return [grad]


def repeat_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `repeat`: sum the copies of each element."""
    shape, repeats = tuple(ctx.x.shape), ctx.attrs["repeats"]
    (axis,) = normalize_axes((ctx.attrs["axis"],), len(shape))
    if len(repeats) > 1:
        table = np.repeat(np.arange(shape[axis], dtype=np.int32), repeats)
        return [index_map_axis_vjp(ctx.grad, axis, table, shape[axis])]
    times = repeats[0] if repeats else 1  # none of no elements
    split_shape = (numel(shape[: axis + 1]), times, numel(shape[axis + 1 :]))
    return [ctx.g.reshape(ctx.g.sum(ctx.g.reshape(ctx.grad, split_shape), 1), shape)]


def roll_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `roll`: roll in the opposite direction."""
    shifts = tuple(-shift for shift in ctx.attrs["shifts"])
    return [ctx.g.apply("roll", ctx.grad, shifts=shifts, axes=ctx.attrs["axes"])]


def dilate_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `dilate`: drop the fill values by a strided slice."""
    axes, steps = ctx.attrs["axes"], ctx.attrs["steps"]
    unbounded = (None,) * len(axes)
    return [
        ctx.g.slice(ctx.grad, unbounded, unbounded, axes, steps) if axes else ctx.grad
    ]
