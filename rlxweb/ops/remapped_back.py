"""Gradients of pad, tile, repeat, roll and dilate: of their own kind where they can be.

What is added is cut off, what was cut off is zero, copies are added up; a table is
written only of the edges that padding mirrors, and of counts that differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlxweb.ir.derivative import Taken, Vjp
from rlxweb.ir.shape import distinct_axes, numel
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.places_back import Table, back_along

Padded = Callable[[int, int, int, str], Table]
"""(size, before, after, mode) → where the elements of a padded axis come from."""


def padded_back(padded: Padded) -> Vjp:
    """The rule of `pad`."""

    def rule(at: Taken) -> list[Tensor | None]:
        grad, mode, x = at.grad, at.attrs["mode"], at.x
        before, after = at.attrs["before"], at.attrs["after"]
        axes = distinct_axes(at.attrs["axes"], x.rank)
        if mode == "constant":
            return [_moved(grad, axes, before, after)]
        for axis, front, back in zip(axes, before, after, strict=True):
            table = padded(x.shape[axis], front, back, mode)
            grad = _edged(grad, axis, (front, back), table, x.shape[axis])
        return [grad]

    return rule


def _moved(
    grad: Tensor, axes: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]
) -> Tensor:
    """Taken away what was put there, and zeros for what was taken away."""
    less = [tuple(-n for n in each) for each in (before, after)]
    return grad.graph.apply("pad", grad, axes=axes, before=less[0], after=less[1])


def _edged(
    grad: Tensor, axis: int, more: tuple[int, int], table: Table, size: int
) -> Tensor:
    """The middle of an axis, and its edges added where they came from."""
    g, (before, after), length = grad.graph, more, len(table)
    made = _moved(grad, (axis,), (before,), (after,))
    front = min(max(before, 0), length)
    back = min(max(size + before, front), length)
    for start, own in ((0, table[:front]), (back, table[back:])):
        if not len(own):
            continue
        low, high = int(own.min()), int(own.max()) + 1
        part = g.narrow(grad, axis, start, len(own))
        part = back_along(part, axis, own - low, high - low)
        made = made + _moved(part, (axis,), (-low,), (high - size,))
    return made


def tiled_back(at: Taken) -> list[Tensor | None]:
    """Add up the copies along every axis, one axis after the other.

    All at once would take twice the axes, more than an array may have.
    """
    grad, shape = at.grad, tuple(at.x.shape)
    for axis, times in enumerate(at.attrs["repeats"]):
        if times != 1:
            lead, rest = numel(shape[:axis]), numel(grad.shape[axis + 1 :])
            apart = at.g.reshape(grad, (lead, times, shape[axis] * rest))
            kept = (*shape[: axis + 1], *grad.shape[axis + 1 :])
            grad = at.g.reshape(at.g.sum(apart, 1), kept)
    return [grad]


def repeated_back(at: Taken) -> list[Tensor | None]:
    """Add up the copies of each element."""
    shape, repeats = tuple(at.x.shape), at.attrs["repeats"]
    (axis,) = distinct_axes((at.attrs["axis"],), len(shape))
    if len(repeats) > 1:
        table = np.repeat(np.arange(shape[axis], dtype=np.int32), repeats)
        return [back_along(at.grad, axis, table, shape[axis])]
    times = repeats[0] if repeats else 1  # none of no elements
    apart = (numel(shape[: axis + 1]), times, numel(shape[axis + 1 :]))
    return [at.g.reshape(at.g.sum(at.g.reshape(at.grad, apart), 1), shape)]


def rolled_back(at: Taken) -> list[Tensor | None]:
    """The other way round."""
    shifts = tuple(-shift for shift in at.attrs["shifts"])
    return [at.g.apply("roll", at.grad, shifts=shifts, axes=at.attrs["axes"])]


def dilated_back(at: Taken) -> list[Tensor | None]:
    """Without what was put between."""
    axes, steps = at.attrs["axes"], at.attrs["steps"]
    none = (None,) * len(axes)
    return [at.g.slice(at.grad, none, none, axes, steps) if axes else at.grad]
