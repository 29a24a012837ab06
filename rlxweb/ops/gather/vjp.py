"""Vector-Jacobian products of gather and scatter.

One set of rules for both ways of naming places, by element and by tuples: `take` and
`put` are the ops of a way, with its attributes.
"""

from __future__ import annotations

from math import prod

from rlxweb.ir.derivative import VjpContext, VjpRule
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.layout.index_map_vjp import enumerate_axes, zeros_with_dtype


def gather_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of `gather`: sum the gradient rows into their table rows by one scatter."""
    g, (table, indices) = ctx.g, ctx.inputs
    axis = normalize_axis(ctx.attrs["axis"], table.rank)
    count = prod(indices.shape)
    leading, trailing = table.shape[:axis], table.shape[axis + 1 :]
    rows = g.reshape(ctx.grad, (*leading, count, *trailing))
    order = (axis, *(a for a in range(table.rank) if a != axis))
    zeros = zeros_with_dtype(ctx.grad, (table.shape[axis], *leading, *trailing))
    updates, row_indices = g.transpose(rows, order), g.reshape(indices, (count, 1))
    summed = g.apply("scatter_nd", zeros, row_indices, updates, reduction="add")
    return [g.transpose(summed, [order.index(a) for a in range(table.rank)]), None]


def indexed_gather_vjp(scatter_op: str) -> VjpRule:
    """Return the VJP rule of `gather_elements` or `gather_nd`, given the matching
    scatter op.
    """

    def rule(ctx: VjpContext) -> list[Tensor | None]:
        zeros = zeros_with_dtype(ctx.grad, ctx.x.shape)
        operand_grad = ctx.g.apply(
            scatter_op, zeros, ctx.y, ctx.grad, **ctx.attrs, reduction="add"
        )
        return [operand_grad, None]

    return rule


def indexed_scatter_vjp(gather_op: str, scatter_op: str) -> VjpRule:
    """Return the VJP rule of `scatter_elements` or `scatter_nd` for every reduction.

    Of several values that are put in at one place the last one counts, or the largest,
    which equal ones share.
    """

    def rule(ctx: VjpContext) -> list[Tensor | None]:
        scatter = _ScatterVjp(ctx, gather_op, scatter_op)
        grads_by_reduction = {
            "none": scatter.replace_grads,
            "add": scatter.add_grads,
            "mul": scatter.multiply_grads,
            "max": scatter.extremum_grads,
            "min": scatter.extremum_grads,
        }
        operand_grad, values_grad = grads_by_reduction[ctx.attrs["reduction"]]()
        return [operand_grad, None, values_grad]

    return rule


class _ScatterVjp:
    """Gradients of one scatter for each of its reductions."""

    def __init__(self, ctx: VjpContext, gather_op: str, scatter_op: str) -> None:
        self.g, self.ctx = ctx.g, ctx
        self.x, self.indices, self.values = ctx.inputs
        self._gather_op, self._scatter_op = gather_op, scatter_op
        self._index_attrs = {k: v for k, v in ctx.attrs.items() if k != "reduction"}

    def gather(self, x: Tensor) -> Tensor:
        """Gather from a tensor at the scatter's indices."""
        return self.g.apply(self._gather_op, x, self.indices, **self._index_attrs)

    def scatter(self, reduction: str, x: Tensor, values: Tensor) -> Tensor:
        """Scatter values into a tensor at the scatter's indices with a reduction."""
        return self.g.apply(
            self._scatter_op,
            x,
            self.indices,
            values,
            reduction=reduction,
            **self._index_attrs,
        )

    def add_grads(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of the operand and the values for reduction `add`."""
        return self.ctx.grad, self.gather(self.ctx.grad)

    def replace_grads(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of the operand and the values for reduction `none`."""
        grad, g = self.ctx.grad, self.g
        zeros = zeros_with_dtype(grad, self.values.shape)
        if "axis" in self._index_attrs:
            first = normalize_axis(self._index_attrs["axis"], self.x.rank)
            order = enumerate_axes(self.values, first, first + 1)
        else:
            order = enumerate_axes(self.values, 0, self.indices.rank - 1)
        unset = g.expand(g.constant(-1, order.dtype), self.x.shape)
        is_last = self.gather(self.scatter("none", unset, order)).eq(order)
        return self.scatter("none", grad, zeros), g.where(
            is_last, self.gather(grad), zeros
        )

    def extremum_grads(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of the operand and the values for reductions `max` and
        `min`; ties share.
        """
        out, dtype = self.ctx.out, self.x.dtype
        is_operand_best = self.x.eq(out).cast(dtype)
        is_value_best = self.values.eq(self.gather(out)).cast(dtype)
        share = self.ctx.grad / self.scatter("add", is_operand_best, is_value_best)
        return is_operand_best * share, is_value_best * self.gather(share)

    def multiply_grads(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of the operand and the values for reduction `mul`. The
        product of the other factors is a quotient, except where factors are 0: with one
        zero it is the product of the rest, and with two it is 0 but still has a
        derivative.
        """
        g, dtype, out, grad = self.g, self.x.dtype, self.ctx.out, self.ctx.grad
        factors = self.x, self.values
        masks = tuple(t.eq(0.0) for t in factors)
        pairs = list(zip(masks, factors, strict=True))
        nonzero_operand, nonzero_values = (g.where(m, 1.0, t) for m, t in pairs)
        zero_count = self.scatter("add", *(m.cast(dtype) for m in masks))
        zero_sum = self.scatter("add", *(g.where(m, t, 0.0) for m, t in pairs))
        nonzero_product = self.scatter("mul", nonzero_operand, nonzero_values)
        single_zero = g.where(zero_count.eq(1.0), nonzero_product, 0.0)
        two_zeros = g.where(
            g.logical_and(zero_count.eq(2.0), g.isfinite(nonzero_product)),
            nonzero_product,
            0.0,
        )
        operand_slope_at_zero = single_zero + two_zeros * (zero_sum - self.x)
        other_zeros = self.gather(zero_sum) - self.values
        values_slope_at_zero = (
            self.gather(single_zero) + self.gather(two_zeros) * other_zeros
        )
        operand_slope = g.where(masks[0], operand_slope_at_zero, out / nonzero_operand)
        values_slope = g.where(
            masks[1], values_slope_at_zero, self.gather(out) / nonzero_values
        )
        return grad * operand_slope, self.gather(grad) * values_slope
