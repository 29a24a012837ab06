"""Gradients of what was moved: back to the places that elements came from.

An axis of a result is a table of places of the operand's axis, or -1 for what came from
nowhere. The gradient of an element is the sum over the places where it went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.batching import Examples
from rlxweb.ir.derivative import Taken, Vjp
from rlxweb.ir.shape import Shape
from rlxweb.ir.tensor import Tensor

Table = npt.NDArray[np.int32]


def back_along(grad: Tensor, axis: int, table: Table, size: int) -> Tensor:
    """The gradient of an axis of `size` elements from which `table` was taken.

    What went to several places is added up by twos, so that there is work for many at
    once and as many passes as a sum of two, four, eight … takes.
    """
    g, inside = grad.graph, np.flatnonzero(table >= 0)
    shape = (*grad.shape[:axis], size, *grad.shape[axis + 1 :])
    if not len(inside) or not prod(shape):
        return with_zeros(grad, shape)
    if size == 1:
        return g.sum(_remapped(grad, axis, inside), axis, keep_dim=True)
    order = np.argsort(table[inside], kind="stable")
    places, elements = inside[order], table[inside][order]
    while True:
        starts = np.flatnonzero(np.diff(elements, prepend=-1))
        counts = np.diff(starts, append=len(elements))
        if counts.max() == 1:
            break
        nth = np.arange(len(elements)) - np.repeat(starts, counts)
        even = np.flatnonzero(nth % 2 == 0)
        # Its neighbour goes with it, if that is of the same element.
        is_two = np.append(nth[1:], 0)[even] == nth[even] + 1
        second = np.where(is_two, np.append(places[1:], -1)[even], -1)
        grad = _remapped(grad, axis, places[even]) + _remapped(grad, axis, second)
        places, elements = np.arange(len(even)), elements[even]
    back = np.full(size, -1)
    back[elements] = places
    return _remapped(grad, axis, back)


def _remapped(x: Tensor, axis: int, table: npt.NDArray[Any]) -> Tensor:
    if np.array_equal(table, np.arange(x.shape[axis])):
        return x
    places = tuple(table.tolist())
    return x.graph.apply("remap", x, axes=(axis,), sizes=(len(places),), places=places)


def moved_back(rule: Callable[[Shape, Any], Sequence[Any]]) -> Vjp:
    """The gradient of an op whose axes are made by tables; see `mapped.Rule`."""

    def back(at: Taken) -> list[Tensor | None]:
        grad, shape = at.grad, tuple(at.x.shape)
        for axis, mapped in enumerate(rule(shape, at.attrs)):
            if mapped is not None:
                grad = back_along(grad, axis, mapped.table(), shape[axis])
        return [grad]

    return back


def one_further(at: Examples) -> Tensor:
    """Many examples for an op that moves along its attribute `axes`."""
    rank = at.ranks[0]
    return at.apply(at.x, axes=tuple(a % rank + 1 for a in at.attrs["axes"]))


def with_zeros(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros of a shape, in the dtype of a tensor."""
    g = like.graph
    return g.expand(g.constant(0, like.dtype), tuple(shape))


def numbered(like: Tensor, first: int, last: int) -> Tensor:
    """0, 1, 2, … over some neighbouring axes of a tensor's shape (i32), the same for
    all others.
    """
    g, shape = like.graph, like.shape
    numbers = np.arange(prod(shape[first:last]), dtype=np.int32)
    line = (*(1,) * first, *shape[first:last], *(1,) * (like.rank - last))
    return g.expand(g.constant(numbers.reshape(line)), shape)
