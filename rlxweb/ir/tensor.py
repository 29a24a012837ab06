"""Tensor: a handle to one node of a graph, with operators that add nodes.

Holds no data. Everything an operator does goes through the graph's builder methods, so
shape and dtype errors appear at the line that wrote the expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlxweb.errors import ShapeError, UsageError
from rlxweb.ir.dtype import DType, DTypeLike
from rlxweb.ir.shape import Shape, normal_axis

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph

Number = int | float | bool


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value in a graph. `==` compares identity; use `.eq()` for element-wise."""

    graph: Graph
    id: int

    @property
    def shape(self) -> Shape:
        return self.graph.node(self.id).type.shape

    @property
    def dtype(self) -> DType:
        return self.graph.node(self.id).type.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor(%{self.id} {self.graph.node(self.id).type})"

    def __bool__(self) -> bool:
        raise UsageError(
            repr(self),
            "a tensor has no truth value while the graph is being built",
            hint="use graph.where(condition, a, b)",
        )

    def __add__(self, other: Tensor | Number) -> Tensor:
        return self.graph.add(self, other)

    def __radd__(self, other: Number) -> Tensor:
        return self.graph.add(other, self)

    def __sub__(self, other: Tensor | Number) -> Tensor:
        return self.graph.sub(self, other)

    def __rsub__(self, other: Number) -> Tensor:
        return self.graph.sub(other, self)

    def __mul__(self, other: Tensor | Number) -> Tensor:
        return self.graph.mul(self, other)

    def __rmul__(self, other: Number) -> Tensor:
        return self.graph.mul(other, self)

    def __truediv__(self, other: Tensor | Number) -> Tensor:
        return self.graph.div(self, other)

    def __rtruediv__(self, other: Number) -> Tensor:
        return self.graph.div(other, self)

    def __pow__(self, other: Tensor | Number) -> Tensor:
        return self.graph.pow(self, other)

    def __rpow__(self, other: Number) -> Tensor:
        return self.graph.pow(other, self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.graph.matmul(self, other)

    def __neg__(self) -> Tensor:
        return self.graph.neg(self)

    def __abs__(self) -> Tensor:
        return self.graph.abs(self)

    def __lt__(self, other: Tensor | Number) -> Tensor:
        return self.graph.lt(self, other)

    def __le__(self, other: Tensor | Number) -> Tensor:
        return self.graph.le(self, other)

    def __gt__(self, other: Tensor | Number) -> Tensor:
        return self.graph.gt(self, other)

    def __ge__(self, other: Tensor | Number) -> Tensor:
        return self.graph.ge(self, other)

    def eq(self, other: Tensor | Number) -> Tensor:
        return self.graph.eq(self, other)

    def ne(self, other: Tensor | Number) -> Tensor:
        return self.graph.ne(self, other)

    def reshape(self, *shape: int) -> Tensor:
        return self.graph.reshape(self, shape)

    def transpose(self, *perm: int) -> Tensor:
        return self.graph.transpose(self, perm or tuple(range(self.rank))[::-1])

    def cast(self, dtype: DTypeLike) -> Tensor:
        return self.graph.cast(self, dtype)

    def sum(self, axes: Any = None, keep_dim: bool = False) -> Tensor:
        return self.graph.sum(self, axes, keep_dim)

    def mean(self, axes: Any = None, keep_dim: bool = False) -> Tensor:
        return self.graph.mean(self, axes, keep_dim)

    def __getitem__(self, key: int | slice | tuple[int | slice, ...]) -> Tensor:
        """Basic slicing with step 1: `t[2]`, `t[1:5]`, `t[:, 3:]`.

        Errors   ShapeError for a step, an index out of range or too many axes.
        """
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > self.rank:
            raise ShapeError(repr(self), f"{len(keys)} indices", f"rank is {self.rank}")
        out, dropped = self, []
        for axis, one in enumerate(keys):
            size = self.shape[axis]
            if isinstance(one, slice):
                start, stop, step = one.indices(size)
                if step != 1:
                    raise ShapeError(
                        repr(self),
                        f"slice step {step}",
                        "only step 1 is a view",
                        "gather the wanted rows",
                    )
                length = max(0, stop - start)
            else:
                start, length = normal_axis(one, size), 1
                dropped.append(axis)
            if (start, length) != (0, size):
                out = self.graph.narrow(out, axis, start, length)
        if dropped:
            keep = tuple(d for a, d in enumerate(out.shape) if a not in dropped)
            out = self.graph.reshape(out, keep)
        return out
