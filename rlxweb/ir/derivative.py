"""What an op says of its derivative: a rule that takes the gradient of its result back.

A rule is a field of the op's record, written with the builder methods of a graph, so
that what it adds is differentiated, fused, priced and run as anything else. Rules are
linear in the gradient they take back; forward mode rests on that (`pullback.py`). No op
is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlxweb.ir.shape import Shape
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Taken:
    """A node whose result's gradient is known, for the rule of its op.

    g       the graph, to which the rule adds
    attrs   of the node
    inputs  its operands
    out     its result
    grad    the gradient of the result: of its shape and dtype
    wants   of each operand, whether its gradient is asked for
    """

    g: Graph
    attrs: Mapping[str, Any]
    inputs: tuple[Tensor, ...]
    out: Tensor
    grad: Tensor
    wants: tuple[bool, ...]

    @property
    def x(self) -> Tensor:
        """The first operand."""
        return self.inputs[0]

    @property
    def y(self) -> Tensor:
        """The second operand."""
        return self.inputs[1]


Vjp = Callable[[Taken], Sequence[Tensor | None]]
"""The gradient of each operand: None for zero, and for one nobody wants. A gradient may
have the result's shape where the operand was broadcast to it; it is summed up after.
"""

Slope = Callable[..., Tensor | float]
"""(graph, *operands, result, **attrs) → derivative by one operand, for each element."""


def slopes(*each: Slope | None) -> Vjp:
    """The rule of an elementwise op, of its derivative by each operand; None: zero."""

    def rule(at: Taken) -> list[Tensor | None]:
        return [
            _times(at.grad, one(at.g, *at.inputs, at.out, **at.attrs))
            if one and wanted
            else None
            for one, wanted in zip(each, at.wants, strict=True)
        ]

    return rule


def _times(grad: Tensor, slope: Tensor | float) -> Tensor:
    if isinstance(slope, Tensor):
        return grad * slope
    if slope == 1.0:
        return grad
    return -grad if slope == -1.0 else grad * slope


def flat(at: Taken) -> list[Tensor | None]:
    """The rule of a float op whose derivative is zero wherever it has one."""
    return [None] * len(at.inputs)


def kept(at: Taken) -> list[Tensor | None]:
    """The rule of an op that is its first operand in another shape."""
    return [at.g.reshape(at.grad, at.x.shape), *[None] * (len(at.inputs) - 1)]


def summed_to(grad: Tensor, shape: Shape) -> Tensor:
    """A gradient summed over the axes along which an operand of `shape` was repeated.

    >>> summed_to(of shape [3, 4, 5], (4, 1)) is of shape [4, 1]
    """
    if tuple(grad.shape) == tuple(shape):
        return grad
    more, axes = grad.rank - len(shape), []
    for axis, size in enumerate(grad.shape):
        if axis < more or shape[axis - more] != size:
            axes.append(axis)
    return grad.graph.reshape(grad.sum(axes), shape)
