"""Derivative rules of ops: vector-Jacobian products that add nodes to the graph.

A rule is a field of the op's record, written with the builder methods of a graph, so
that what it adds is differentiated, fused, priced and run as anything else. Rules are
linear in the gradient they take back; forward mode rests on that (`autodiff.py`). No op
is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class VjpContext:
    """A node whose result's gradient is known, as the argument of its op's VJP rule.

    g       the graph, to which the rule adds
    attrs   of the node
    inputs  its operands
    out     its result
    grad    the gradient of the result: of its shape and dtype
    needs_grad  of each operand, whether its gradient is asked for
    """

    g: Graph
    attrs: Mapping[str, Any]
    inputs: tuple[Tensor, ...]
    out: Tensor
    grad: Tensor
    needs_grad: tuple[bool, ...]

    @property
    def x(self) -> Tensor:
        """The first operand."""
        return self.inputs[0]

    @property
    def y(self) -> Tensor:
        """The second operand."""
        return self.inputs[1]


VjpRule = Callable[[VjpContext], Sequence[Tensor | None]]
"""VJP rule: returns the gradient of each operand, None for zero or for one that is not
needed. A gradient may have the result's shape where the operand was broadcast to it; it
is summed afterwards.
"""

PartialDerivative = Callable[..., Tensor | float]
"""Elementwise partial derivative: (graph, *operands, result, **attrs) → derivative by
one operand.
"""


def slopes(*derivatives: PartialDerivative | None) -> VjpRule:
    """Return the VJP rule of an elementwise op from its derivative by each operand;
    None stands for zero.
    """

    def rule(ctx: VjpContext) -> list[Tensor | None]:
        return [
            _scale_gradient(
                ctx.grad, derivative(ctx.g, *ctx.inputs, ctx.out, **ctx.attrs)
            )
            if derivative and is_needed
            else None
            for derivative, is_needed in zip(derivatives, ctx.needs_grad, strict=True)
        ]

    return rule


def _scale_gradient(grad: Tensor, slope: Tensor | float) -> Tensor:
    if isinstance(slope, Tensor):
        return grad * slope
    if slope == 1.0:
        return grad
    return -grad if slope == -1.0 else grad * slope


def zero_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP rule of a float op whose derivative is zero wherever it exists."""
    return [None] * len(ctx.inputs)


def reshape_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP rule of an op that returns its first operand in another shape."""
    return [ctx.g.reshape(ctx.grad, ctx.x.shape), *[None] * (len(ctx.inputs) - 1)]


def sum_to_shape(grad: Tensor, shape: Shape) -> Tensor:
    """Sum a gradient over the axes along which an operand of `shape` was broadcast.

    >>> sum_to_shape(of shape [3, 4, 5], (4, 1)) is of shape [4, 1]
    """
    if tuple(grad.shape) == tuple(shape):
        return grad
    leading_axes, axes = grad.rank - len(shape), []
    for axis, size in enumerate(grad.shape):
        if axis < leading_axes or shape[axis - leading_axes] != size:
            axes.append(axis)
    return grad.graph.reshape(grad.sum(axes), shape)
