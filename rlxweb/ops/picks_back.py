"""Gradients of gather and scatter: what was taken is put back, what was put in taken.

One set of rules for both ways of naming places, by element and by tuples: `take` and
`put` are the ops of a way, with its attributes.
"""

from __future__ import annotations

from math import prod
from typing import Any

from rlxweb.ir.derivative import Taken, Vjp
from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.places_back import numbered, with_zeros


def gathered_back(at: Taken) -> list[Tensor | None]:
    """Of `gather`: rows added up at their places, the axis in front."""
    g, (table, indices) = at.g, at.inputs
    axis = normal_axis(at.attrs["axis"], table.rank)
    count = prod(indices.shape)
    before, behind = table.shape[:axis], table.shape[axis + 1 :]
    rows = g.reshape(at.grad, (*before, count, *behind))
    order = (axis, *(a for a in range(table.rank) if a != axis))
    zeros = with_zeros(at.grad, (table.shape[axis], *before, *behind))
    lines, places = g.transpose(rows, order), g.reshape(indices, (count, 1))
    summed = g.apply("scatter_nd", zeros, places, lines, reduction="add")
    return [g.transpose(summed, [order.index(a) for a in range(table.rank)]), None]


def taken_back(put: str) -> Vjp:
    """Of `gather_elements` and `gather_nd`, by the op that puts in so."""

    def rule(at: Taken) -> list[Tensor | None]:
        zeros = with_zeros(at.grad, at.x.shape)
        back = at.g.apply(put, zeros, at.y, at.grad, **at.attrs, reduction="add")
        return [back, None]

    return rule


def put_back(take: str, put: str) -> Vjp:
    """Of `scatter_elements` and `scatter_nd`, in every reduction.

    Of several values that are put in at one place the last one counts, or the largest,
    which equal ones share.
    """

    def rule(at: Taken) -> list[Tensor | None]:
        ways = _Ways(at, take, put)
        how = {
            "none": ways.replaced,
            "add": ways.added,
            "mul": ways.multiplied,
            "max": ways.best,
            "min": ways.best,
        }
        by_x, by_values = how[at.attrs["reduction"]]()
        return [by_x, None, by_values]

    return rule


class _Ways:
    """The reductions of one scatter."""

    def __init__(self, at: Taken, take: str, put: str) -> None:
        self.g, self.at = at.g, at
        self.x, self.indices, self.values = at.inputs
        self._take, self._put = take, put
        self._named = {k: v for k, v in at.attrs.items() if k != "reduction"}

    def take(self, x: Tensor) -> Tensor:
        return self.g.apply(self._take, x, self.indices, **self._named)

    def put(self, how: str, x: Tensor, values: Tensor) -> Tensor:
        of: dict[str, Any] = {**self._named, "reduction": how}
        return self.g.apply(self._put, x, self.indices, values, **of)

    def added(self) -> tuple[Tensor, Tensor]:
        return self.at.grad, self.take(self.at.grad)

    def replaced(self) -> tuple[Tensor, Tensor]:
        grad, g = self.at.grad, self.g
        zeros = with_zeros(grad, self.values.shape)
        if "axis" in self._named:
            first = normal_axis(self._named["axis"], self.x.rank)
            order = numbered(self.values, first, first + 1)
        else:
            order = numbered(self.values, 0, self.indices.rank - 1)
        none = g.expand(g.constant(-1, order.dtype), self.x.shape)
        is_last = self.take(self.put("none", none, order)).eq(order)
        return self.put("none", grad, zeros), g.where(is_last, self.take(grad), zeros)

    def best(self) -> tuple[Tensor, Tensor]:
        out, dtype = self.at.out, self.x.dtype
        mine = self.x.eq(out).cast(dtype)
        theirs = self.values.eq(self.take(out)).cast(dtype)
        share = self.at.grad / self.put("add", mine, theirs)
        return mine * share, theirs * self.take(share)

    def multiplied(self) -> tuple[Tensor, Tensor]:
        """The product of the others: by division, but for zeros. Without the only one
        there is a product; without one of two there is the other times it, which is 0
        and has a derivative.
        """
        g, dtype, out, grad = self.g, self.x.dtype, self.at.out, self.at.grad
        factors = self.x, self.values
        masks = tuple(t.eq(0.0) for t in factors)
        pairs = list(zip(masks, factors, strict=True))
        own, others = (g.where(m, 1.0, t) for m, t in pairs)
        zeros = self.put("add", *(m.cast(dtype) for m in masks))
        both = self.put("add", *(g.where(m, t, 0.0) for m, t in pairs))
        rest = self.put("mul", own, others)
        alone = g.where(zeros.eq(1.0), rest, 0.0)
        paired = g.where(g.logical_and(zeros.eq(2.0), g.isfinite(rest)), rest, 0.0)
        of_x = alone + paired * (both - self.x)
        far = self.take(both) - self.values
        of_values = self.take(alone) + self.take(paired) * far
        by_x = g.where(masks[0], of_x, out / own)
        by_values = g.where(masks[1], of_values, self.take(out) / others)
        return grad * by_x, self.take(grad) * by_values
